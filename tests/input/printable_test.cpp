// No text steers a terminal, and none fills it.
#include "common/input/printable.h"

#include <gtest/gtest.h>

namespace sc {
namespace {

TEST(Printable, PlainTextStays) {
  for (const std::string text :
       {"", "a b/c\\d", "two\nlines\tand a tab", "\xc3\xbc \xe2\x82\xac \xf0\x9f\x99\x82 \xc2\xa0"})
    EXPECT_EQ(printable(text), text);
}

TEST(Printable, WhatSteersIsEscaped) {
  EXPECT_EQ(printable("\x1b[31mred\x1b[0m"), "\\x1b[31mred\\x1b[0m");
  EXPECT_EQ(printable("a\rb\bc\x7f"), "a\\x0db\\x08c\\x7f");
  EXPECT_EQ(printable(std::string("a\0b", 3)), "a\\x00b");
  EXPECT_EQ(printable("\xc2\x9b"
                      "31m"),
            "\\xc2\\x9b31m");                                                          // C1's own escape
  EXPECT_EQ(printable("\xe2\x80\xae\xe2\x81\xa6"), "\\xe2\\x80\\xae\\xe2\\x81\\xa6");  // right to left
}

TEST(Printable, WhatIsNoUtf8IsEscaped) {
  EXPECT_EQ(printable("\xff\x9b"), "\\xff\\x9b");
  EXPECT_EQ(printable("\xc3"), "\\xc3");
  EXPECT_EQ(printable("\xe2\x82"), "\\xe2\\x82");
  EXPECT_EQ(printable("\xc0\x9b"), "\\xc0\\x9b");           // too long a form of ESC
  EXPECT_EQ(printable("\xe0\x80\x9b"), "\\xe0\\x80\\x9b");  // longer still
  EXPECT_EQ(printable("\xed\xa0\x80"), "\\xed\\xa0\\x80");  // half a pair
  EXPECT_EQ(printable("\xf4\x90\x80\x80"), "\\xf4\\x90\\x80\\x80");
}

TEST(Printable, NamesAreClipped) {
  EXPECT_EQ(shown("model.layers"), "model.layers");
  EXPECT_EQ(shown("a\nerror: b"), "a\\x0aerror: b");  // a name brings no line of its own
  EXPECT_EQ(shown(std::string(10000000, 'k'), 4), "kkkk... (10000000 bytes)");
  EXPECT_EQ(shown("ab\xe2\x82\xac"
                  "cd",
                  4),
            "ab... (7 bytes)");  // no character is cut in two
  EXPECT_EQ(shown(std::string(100, '\x80')).find('\x80'), std::string::npos);
}

TEST(Printable, MessagesKeepBeginAndEnd) {
  EXPECT_EQ(shown_message("a\nb"), "a\nb");
  const std::string all = shown_message("begin" + std::string(1000000, 'x') + "end");
  EXPECT_LT(all.size(), 13000U);
  EXPECT_EQ(all.substr(0, 5) + all.substr(all.size() - 3), "beginend");
}

}  // namespace
}  // namespace sc
