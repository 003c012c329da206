//! Waits for one descriptor before each read of it.

use serde_json::{Value, json};

use super::{advised, advised_with};
use crate::common::line_of;

/// Each line waits 300 times, and one of its descriptors is ready at once. The program allocates nothing.
const WAITS: &str = r#"
static int ends[2], other[2], epoll;
static char bytes[100];
static void ready(int fd) {
  fd_set set;
  FD_ZERO(&set);
  FD_SET(fd, &set);
  WANT(select(fd + 1, &set, 0, 0, 0) == 1);  // @select
}
static void ready_masked(int fd) {
  fd_set set, failed;
  FD_ZERO(&set);
  FD_ZERO(&failed);
  FD_SET(fd, &set);
  FD_SET(fd, &failed);
  WANT(pselect(100, &set, 0, &failed, 0, 0) == 1);  // @pselect
}
static void wait_for(int fd) {
  struct epoll_event event;
  WANT(epoll_wait(fd, &event, 1, -1) == 1);  // @epoll
}
static void watch(int fd, int change) {
  struct epoll_event event = {.events = EPOLLIN};
  WANT(epoll_ctl(epoll, change, fd, &event) == 0);
}
// Near misses: of two descriptors.
static void either(int fd) {
  fd_set set, more;
  FD_ZERO(&set);
  FD_ZERO(&more);
  FD_SET(fd, &set);
  FD_SET(other[0], &more);
  WANT(select(100, &set, 0, &more, 0) == 1);
}
static void wait_for_either(void) {
  struct epoll_event event;
  WANT(epoll_wait(epoll, &event, 1, -1) == 1);
}
static void fill(void) { WANT(write(ends[1], bytes, 30) == 30); }
static void take(void) { WANT(read(ends[0], bytes, 100) == 30); }
// And after a read that has found nothing.
static void again(void) {
  struct pollfd polled = {.fd = ends[0], .events = POLLIN};
  WANT(read(ends[0], bytes, 100) == -1 && errno == EAGAIN);
  fill();
  WANT(poll(&polled, 1, -1) == 1);
}
int main(void) {
  WANT(pipe2(ends, O_NONBLOCK) == 0 && pipe(other) == 0 && (epoll = epoll_create1(0)) >= 0);
  for (int i = 0; i < 300; i++) {
    fill();
    ready(ends[0]);
    take();
    fill();
    ready_masked(ends[0]);
    take();
    fill();
    either(ends[0]);
    take();
    again();
    take();
  }
  watch(other[0], EPOLL_CTL_ADD);
  watch(ends[0], EPOLL_CTL_ADD);
  for (int i = 0; i < 300; i++) {
    fill();
    wait_for_either();
    take();
  }
  watch(ends[0], EPOLL_CTL_MOD);
  watch(other[0], EPOLL_CTL_DEL);
  for (int i = 0; i < 300; i++) {
    fill();
    wait_for(epoll);
    take();
  }
  return 0;
}
"#;

fn lines_of_waits(source: &str, option: &str) -> (Vec<Value>, String) {
    let advised = advised_with(source, &[option]);
    let found = advised.of("poll-then-read");
    let mut lines: Vec<Value> = found.iter().map(|f| f["site"]["line"].clone()).collect();
    lines.sort_by_key(Value::as_u64);
    assert!(
        advised.text.contains("Read before you poll: "),
        "{}",
        advised.text
    );
    (lines, advised.source)
}

#[test]
fn a_select_or_epoll_of_one_descriptor_before_each_read_is_found() {
    for option in ["--syscalls", "--syscalls=kernel"] {
        let (lines, source) = lines_of_waits(WAITS, option);
        let wanted = ["select", "pselect", "epoll"].map(|mark| json!(line_of(&source, mark)));
        assert_eq!(lines, wanted, "{option}");
    }
}

/// The parent's epoll descriptor has another descriptor, which the child does not remove.
#[test]
fn what_an_epoll_descriptor_of_the_parent_waits_for_is_not_known() {
    let child = WAITS
        .replace(
            "  watch(ends[0], EPOLL_CTL_ADD);",
            "  if (fork() != 0) return 0;\n  watch(ends[0], EPOLL_CTL_ADD);",
        )
        .replace("  watch(other[0], EPOLL_CTL_DEL);", "");
    let (lines, source) = lines_of_waits(&child, "--syscalls");
    let wanted = ["select", "pselect"].map(|mark| json!(line_of(&source, mark)));
    assert_eq!(lines, wanted);
}

#[test]
fn a_poll_before_each_read_is_found_where_it_does_not_wait() {
    const POLL: &str = r#"
#include <sys/timerfd.h>
static int ends[2], other[2];
static char bytes[100];
static void ready(int fd, nfds_t count) {
  struct pollfd polled[2] = {{.fd = fd, .events = POLLIN}, {.fd = other[0], .events = POLLIN}};
  WANT(poll(polled, count, -1) == 1);  // @poll
}
int main(void) {
  WANT(pipe(ends) == 0 && pipe(other) == 0);
  for (int i = 0; i < 300; i++) {
    WANT(write(ends[1], bytes, 30) == 30);
    ready(ends[0], 1);
    WANT(read(ends[0], bytes, 100) == 30);  // @read
  }
  for (int i = 0; i < 300; i++) {
    struct pollfd two[2] = {{.fd = ends[0], .events = POLLIN}, {.fd = other[0], .events = POLLIN}};
    WANT(write(ends[1], bytes, 30) == 30 && poll(two, 2, -1) == 1 && read(ends[0], bytes, 100) == 30);
  }
  const struct itimerspec soon = {.it_value.tv_nsec = 1000000};
  struct pollfd slow = {.fd = timerfd_create(CLOCK_MONOTONIC, 0), .events = POLLIN};
  for (int i = 0; i < 200; i++) {
    WANT(timerfd_settime(slow.fd, 0, &soon, 0) == 0);
    WANT(poll(&slow, 1, -1) == 1 && read(slow.fd, bytes, 8) == 8);
  }
  return 0;
}
"#;
    let advised = advised(POLL);
    let found = advised.only("poll-then-read", "poll");
    assert_eq!(found["of"], json!(300));
    // A poll that was interrupted may take longer than one that does not wait. Fewer are no finding.
    let saved = found["saves"]["calls"].as_u64().expect("a count");
    assert!((270..=300).contains(&saved), "{saved}");
    assert_eq!(
        found["other"]["line"],
        json!(line_of(&advised.source, "read"))
    );
}
