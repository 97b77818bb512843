"""Axes for the figure of lessons/report.sh, which needs Python alone; the pages' plots are matplotlib's."""


class Plot:
    """Axes in a drawing: `x` and `y` map values to places."""

    def __init__(self, drawing, left, top, width, height, x_range, y_range):
        self.drawing, self.left, self.top, self.width, self.height = drawing, left, top, width, height
        self.x_range, self.y_range = x_range, y_range

    def x(self, value):
        return self.left + self.width * (value - self.x_range[0]) / (self.x_range[1] - self.x_range[0])

    def y(self, value):
        return self.top + self.height * (1 - (value - self.y_range[0]) / (self.y_range[1] - self.y_range[0]))

    def axes(self, x_ticks, y_ticks, x_name, y_name):
        """Ticks: (value, text)."""
        for value, text in y_ticks:
            self.drawing.line(self.left, self.y(value), self.left + self.width, self.y(value))
            self.drawing.text(self.left - 8, self.y(value) + 4, text, "small end")
        for value, text in x_ticks:
            self.drawing.line(self.x(value), self.top, self.x(value), self.top + self.height)
            self.drawing.text(self.x(value), self.top + self.height + 16, text, "small mid")
        self.drawing.text(self.left + self.width / 2, self.top + self.height + 36, x_name, "small mid")
        self.drawing.text(self.left, self.top - 10, y_name, "small")

    def curve(self, points, colour, turn=0, of=1):
        self.drawing.polyline([(self.x(x), self.y(y)) for x, y in points], colour, turn, of)


def label_ends(drawing, x, ends, top):
    """A name for each curve, right of it, none above another: (y, colours, text)."""
    least = top
    for y, colours, text in sorted(ends):
        y = max(y, least)
        for turn, colour in enumerate(colours):
            drawing.polyline([(x, y), (x + 16, y)], colour, turn, len(colours))
        drawing.text(x + 21, y + 4, text, "small")
        least = y + 16
