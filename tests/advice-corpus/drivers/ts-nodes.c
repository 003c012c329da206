// Nested lists in brackets, parsed with a grammar of two rules:
// group = "(" list? ")", list = list? group.
#include <stdio.h>
#include <stdlib.h>
#include <tree_sitter/api.h>
#include <tree_sitter/parser.h>

enum { END, OPEN, CLOSE, GROUP, LIST, SYMBOLS };
enum { STATES = 9 };

static bool lex(TSLexer* lexer, TSStateId state) {
  (void)state;
  while (lexer->lookahead == ' ' || lexer->lookahead == '\n') lexer->advance(lexer, true);
  if (lexer->eof(lexer)) {
    lexer->result_symbol = END;
    lexer->mark_end(lexer);
    return true;
  }
  if (lexer->lookahead != '(' && lexer->lookahead != ')') return false;
  lexer->result_symbol = lexer->lookahead == '(' ? OPEN : CLOSE;
  lexer->advance(lexer, false);
  lexer->mark_end(lexer);
  return true;
}

// Where an action is in the table of actions, which has a head before each.
enum {
  SHIFT_2 = 1,
  SHIFT_4 = 3,
  SHIFT_6 = 5,
  EMPTY = 7,
  FULL = 9,
  FIRST = 11,
  NEXT = 13,
  DONE = 15
};

static const TSParseActionEntry actions[] = {
    [0] = {.entry = {.count = 0, .reusable = false}},
    [SHIFT_2] = {.entry = {.count = 1, .reusable = true}},
    SHIFT(2),
    [SHIFT_4] = {.entry = {.count = 1, .reusable = true}},
    SHIFT(4),
    [SHIFT_6] = {.entry = {.count = 1, .reusable = true}},
    SHIFT(6),
    [EMPTY] = {.entry = {.count = 1, .reusable = true}},
    REDUCE(GROUP, 2, .production_id = 0),
    [FULL] = {.entry = {.count = 1, .reusable = true}},
    REDUCE(GROUP, 3, .production_id = 0),
    [FIRST] = {.entry = {.count = 1, .reusable = true}},
    REDUCE(LIST, 1, .production_id = 0),
    [NEXT] = {.entry = {.count = 1, .reusable = true}},
    REDUCE(LIST, 2, .production_id = 0),
    [DONE] = {.entry = {.count = 1, .reusable = true}},
    ACCEPT_INPUT(),
};

static const uint16_t table[STATES][SYMBOLS] = {
    [1] = {[OPEN] = SHIFT_2, [GROUP] = 3},
    [2] = {[OPEN] = SHIFT_2, [CLOSE] = SHIFT_4, [GROUP] = 7, [LIST] = 5},
    [3] = {[END] = DONE},
    [4] = {[END] = EMPTY, [OPEN] = EMPTY, [CLOSE] = EMPTY},
    [5] = {[OPEN] = SHIFT_2, [CLOSE] = SHIFT_6, [GROUP] = 8},
    [6] = {[END] = FULL, [OPEN] = FULL, [CLOSE] = FULL},
    [7] = {[OPEN] = FIRST, [CLOSE] = FIRST},
    [8] = {[OPEN] = NEXT, [CLOSE] = NEXT},
};

static const char* names[SYMBOLS] = {"end", "(", ")", "group", "list"};
static const TSSymbolMetadata metadata[SYMBOLS] = {
    [OPEN] = {.visible = true},
    [CLOSE] = {.visible = true},
    [GROUP] = {.visible = true, .named = true},
};
static const TSSymbol public_symbols[SYMBOLS] = {END, OPEN, CLOSE, GROUP, LIST};
static const TSLexMode lex_modes[STATES];

static const TSLanguage language = {
    .version = TREE_SITTER_LANGUAGE_VERSION,
    .symbol_count = SYMBOLS,
    .token_count = GROUP,
    .symbol_names = names,
    .symbol_metadata = metadata,
    .parse_table = &table[0][0],
    .parse_actions = actions,
    .lex_modes = lex_modes,
    .lex_fn = lex,
    .large_state_count = STATES,
    .public_symbol_map = public_symbols,
    .state_count = STATES,
};

int main(int argc, char** argv) {
  const int rounds = argc > 1 ? atoi(argv[1]) : 50;
  static char text[8000];
  size_t size = 0;
  text[size++] = '(';
  for (int group = 0; group < 200; group++)
    size +=
        (size_t)snprintf(text + size, sizeof text - size, "(()(() ())%s)\n", group % 3 ? "" : "()");
  text[size++] = ')';
  TSParser* parser = ts_parser_new();
  if (!ts_parser_set_language(parser, &language)) return 1;
  unsigned groups = 0;
  for (int round = 0; round < rounds; round++) {
    TSTree* tree = ts_parser_parse_string(parser, NULL, text, (uint32_t)size);
    TSNode root = ts_tree_root_node(tree);
    if (ts_node_has_error(root)) return 1;
    groups += ts_node_named_child_count(root);
    ts_tree_delete(tree);
  }
  ts_parser_delete(parser);
  printf("%u groups\n", groups);
  return 0;
}
