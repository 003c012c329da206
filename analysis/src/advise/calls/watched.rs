//! The descriptors that a wait is for.
//!
//! A descriptor counts as watched by an epoll descriptor until it is removed, even if it was closed: another
//! descriptor, or a process, may still have its file.
//!
//! Memory: by the descriptors that are watched.

use std::collections::{BTreeSet, HashMap};

use larder_trace::SystemCall;

use super::Called;

#[derive(Default)]
pub struct Watched {
    by_epoll: HashMap<i32, BTreeSet<i32>>,
    /// Nothing may be known of some that are watched.
    is_partial: bool,
}

impl Watched {
    pub fn know_nothing(&mut self) {
        self.is_partial = true;
    }

    pub fn called(&mut self, now: &Called) {
        match now.call {
            SystemCall::EpollCtl if now.result == 0 => self.changed(now),
            SystemCall::Close if now.result == 0 => {
                self.by_epoll.remove(&now.descriptor);
            }
            // Their arguments are not recorded.
            SystemCall::Syscall
                if [libc::SYS_epoll_ctl, libc::SYS_io_uring_enter]
                    .contains(&(now.limit as i64)) =>
            {
                self.is_partial = true;
            }
            _ => {}
        }
    }

    fn changed(&mut self, now: &Called) {
        let watched = self.by_epoll.entry(now.descriptor).or_default();
        let descriptor = now.limit as u32 as i32;
        match i32::try_from(now.limit >> 32) {
            Ok(libc::EPOLL_CTL_ADD) => {
                watched.insert(descriptor);
            }
            Ok(libc::EPOLL_CTL_DEL) => {
                watched.remove(&descriptor);
            }
            Ok(libc::EPOLL_CTL_MOD) => {}
            _ => self.is_partial = true,
        }
    }

    /// The descriptor of a wait for only one that has found it ready.
    pub fn only(&self, wait: &Called) -> Option<i32> {
        if !matches!(wait.call, SystemCall::EpollWait | SystemCall::EpollPwait) {
            return (wait.descriptor >= 0).then_some(wait.descriptor);
        }
        let watched = self.by_epoll.get(&wait.descriptor)?;
        let only = watched.first().filter(|_| watched.len() == 1);
        only.copied().filter(|_| !self.is_partial)
    }
}

#[cfg(test)]
mod tests {
    use larder_trace::StackId;

    use super::*;

    fn called(call: SystemCall, descriptor: i32, limit: u64) -> Called {
        Called {
            call,
            result: 0,
            limit,
            descriptor,
            stack: StackId::UNKNOWN,
            thread: 1,
            end_ns: 0.0,
            ns: 0.0,
        }
    }

    fn change(operation: i32, descriptor: u64) -> Called {
        called(
            SystemCall::EpollCtl,
            3,
            (operation as u64) << 32 | descriptor,
        )
    }

    fn only(calls: &[Called]) -> Option<i32> {
        let mut watched = Watched::default();
        for call in calls {
            watched.called(call);
        }
        watched.only(&called(SystemCall::EpollWait, 3, 16))
    }

    #[test]
    fn a_descriptor_is_watched_until_it_is_removed() {
        use libc::{EPOLL_CTL_ADD, EPOLL_CTL_DEL, EPOLL_CTL_MOD};
        let (first, second) = (change(EPOLL_CTL_ADD, 7), change(EPOLL_CTL_ADD, 8));
        assert_eq!(only(&[]), None);
        assert_eq!(only(&[first, change(EPOLL_CTL_MOD, 7)]), Some(7));
        assert_eq!(only(&[first, second]), None);
        assert_eq!(only(&[first, second, change(EPOLL_CTL_DEL, 7)]), Some(8));
        let closed = called(SystemCall::Close, 7, 0);
        assert_eq!(only(&[first, closed, second]), None);
        let again = called(SystemCall::Close, 3, 0);
        assert_eq!(only(&[first, again, second]), Some(8));
        let mut failed = second;
        failed.result = -i64::from(libc::EPERM);
        assert_eq!(only(&[first, failed]), Some(7));
    }

    #[test]
    fn what_is_not_recorded_may_watch_others() {
        let first = change(libc::EPOLL_CTL_ADD, 7);
        // Of a recorder that did not yet record what is changed.
        assert_eq!(only(&[first, change(0, 0)]), None);
        for number in [libc::SYS_epoll_ctl, libc::SYS_io_uring_enter] {
            let other = called(SystemCall::Syscall, -1, number as u64);
            assert_eq!(only(&[first, other]), None);
        }
        let hostile = called(SystemCall::EpollCtl, 3, u64::MAX);
        assert_eq!(only(&[first, hostile]), None);
    }
}
