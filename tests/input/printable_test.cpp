// Tests that no text steers a terminal, and none fills it.
#include "common/input/printable.h"

#include <gtest/gtest.h>

#include "tests/support/answers.h"

namespace sc {
namespace {

using test::expect_texts;

TEST(Printable, PlainTextStays) {
  for (const std::string text :
       {"", "a b/c\\d", "two\nlines\tand a tab", "\xc3\xbc \xe2\x82\xac \xf0\x9f\x99\x82 \xc2\xa0"})
    EXPECT_EQ(printable(text), text);
}

TEST(Printable, WhatSteersIsEscaped) {
  expect_texts({
      {printable("\x1b[31mred\x1b[0m"), "\\x1b[31mred\\x1b[0m"},
      {printable("a\rb\bc\x7f"), "a\\x0db\\x08c\\x7f"},
      {printable(std::string("a\0b", 3)), "a\\x00b"},
      {printable("\xc2\x9b"
                 "31m"),
       "\\xc2\\x9b31m"},                                                         // C1's own escape
      {printable("\xe2\x80\xae\xe2\x81\xa6"), "\\xe2\\x80\\xae\\xe2\\x81\\xa6"}  // right to left
  });
}

TEST(Printable, WhatIsNoUtf8IsEscaped) {
  expect_texts({{printable("\xff\x9b"), "\\xff\\x9b"},
                {printable("\xc3"), "\\xc3"},
                {printable("\xe2\x82"), "\\xe2\\x82"},
                {printable("\xc0\x9b"), "\\xc0\\x9b"},           // too long a form of ESC
                {printable("\xe0\x80\x9b"), "\\xe0\\x80\\x9b"},  // longer still
                {printable("\xed\xa0\x80"), "\\xed\\xa0\\x80"},  // half a pair
                {printable("\xf4\x90\x80\x80"), "\\xf4\\x90\\x80\\x80"}});
}

TEST(Printable, NamesAreClipped) {
  expect_texts({{shown("model.layers"), "model.layers"},
                {shown("a\nerror: b"), "a\\x0aerror: b"},  // a name brings no line of its own
                {shown(std::string(10000000, 'k'), 4), "kkkk... (10000000 bytes)"},
                {shown("ab\xe2\x82\xac"
                       "cd",
                       4),
                 "ab... (7 bytes)"}});  // no character is cut in two
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
