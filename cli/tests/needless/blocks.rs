//! Blocks that one copy filled, with `--contents`.

use serde_json::json;

use super::*;

/// What lives on, and what only seems to.
const LIVES_ON: &str = r#"
static const char *volatile words[] = {"a text that is copied", "another one, somewhat longer"};
static char *volatile last;
static char *again(const char *text) { return strdup(text); }  // @again
static char *changed(const char *text, int number) {
  char *copy = malloc(24);
  memcpy(copy, text, 24);  // not that one
  copy[3] = (char)number;
  return copy;
}
static char *part(const char *text) {
  char *copy = malloc(400);
  memcpy(copy, text, 200);  // nor that: half of the block
  memset(copy + 200, 1, 200);
  return copy;
}
static void *thread(void *source) {
  for (int i = 0; i < 500; i++) {
    char *copy = malloc(1000);
    memcpy(copy, (char *)source + 100, 1000);  // @refer
    last = copy;
    free(copy);
  }
  return NULL;
}
int main(void) {
  char *source = malloc(4096);  // @source
  for (int i = 0; i < 4096; i++) source[i] = (char)(i * 37 % 100 + 1);
  pthread_t threads[2];
  for (int i = 0; i < 2; i++) WANT(pthread_create(&threads[i], NULL, thread, source) == 0);
  for (int i = 0; i < 2; i++) pthread_join(threads[i], NULL);
  char *kept[300];
  for (int i = 0; i < 300; i++) {
    kept[i] = again(words[i % 2]);
    free(changed(source, i));
    free(part(source));
    char *brief = malloc(64), *copy = malloc(64);
    snprintf(brief, 64, "text number %d of a buffer that goes first", i);
    memcpy(copy, brief, 64);  // nor that
    free(brief);
    free(copy);
    source[4000] = (char)i;
    memcpy(source + 2000, source, 200);
  }
  for (int i = 0; i < 300; i++) free(kept[i]);
  char *stays[120];
  for (int i = 0; i < 120; i++) {
    stays[i] = malloc(200);
    memcpy(stays[i], source + i, 200);  // @stays
  }
  last = stays[119];
  return 0;
}
"#;

#[test]
fn a_source_that_lives_on_is_told_from_one_that_ends_or_a_copy_that_changes() {
    let advised = advised_with(LIVES_ON, &["--copies", "--contents"]);
    let found = advised.of("source-lives-on");
    let lines = |mark: &str| json!(line_of(&advised.source, mark));
    let mut stated: Vec<Value> = found
        .iter()
        .map(|f| {
            json!([
                f["site"]["line"],
                f["saves"]["calls"],
                f["saves"]["bytes"],
                f["of"]
            ])
        })
        .collect();
    stated.sort_by_key(|row| row[0].as_u64());
    assert_eq!(
        stated,
        [
            json!([lines("refer"), 1000, 1_000_000, 1000]),
            json!([lines("stays"), 120, 24_000, 120]),
        ],
        "{:#?}",
        advised.findings
    );
    for finding in found {
        assert_eq!(finding["other"]["line"], lines("source"), "{finding:#}");
        assert_eq!(finding["confidence"], "medium");
    }
    let texts = advised.only("same-text", "again");
    assert_eq!(
        (&texts["saves"]["calls"], &texts["of"], &texts["runs"]),
        (&json!(298), &json!(300), &json!(2))
    );
}
