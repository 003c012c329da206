//! Assigns slots to blocks. A slot serves one block after another. The thread that freed it reuses it
//! first, because a slot that changes threads costs the replay a wait.
//!
//! Invariant: slots ≤ 2 × maximum of live blocks + `SPARE`.

use std::collections::VecDeque;

/// Slots beyond twice the live blocks, before a thread takes a slot that another one has freed.
const SPARE: usize = 1024;

/// The number of operations on each slot, and the thread of the last one.
#[derive(Debug, Default)]
struct Slot {
    turn: u32,
    thread: u32,
}

#[derive(Debug, Default)]
pub struct Slots {
    slots: Vec<Slot>,
    /// Free slots by thread, the last freed at the back.
    free: Vec<VecDeque<u32>>,
    /// Threads that may have free slots, without duplicates.
    donors: Vec<u32>,
    is_donor: Vec<bool>,
    live: usize,
    most_live: usize,
}

impl Slots {
    pub fn add_thread(&mut self) {
        self.free.push(VecDeque::new());
        self.is_donor.push(false);
    }

    pub fn count(&self) -> usize {
        self.slots.len()
    }

    /// A slot for a block that this thread allocates.
    pub fn take(&mut self, thread: u32) -> u32 {
        self.live += 1;
        self.most_live = self.most_live.max(self.live);
        let own = self.free.get_mut(thread as usize);
        if let Some(slot) = own.and_then(VecDeque::pop_back) {
            return slot;
        }
        if self.slots.len() >= 2 * self.most_live + SPARE
            && let Some(slot) = self.take_from_others()
        {
            return slot;
        }
        self.slots.push(Slot { turn: 0, thread });
        (self.slots.len() - 1) as u32
    }

    /// A slot that some thread freed longest ago: its free has probably been carried out.
    fn take_from_others(&mut self) -> Option<u32> {
        while let Some(&donor) = self.donors.last() {
            if let Some(slot) = self.free.get_mut(donor as usize)?.pop_front() {
                return Some(slot);
            }
            self.donors.pop();
            *self.is_donor.get_mut(donor as usize)? = false;
        }
        None
    }

    /// This thread has freed the block in the slot.
    pub fn give_back(&mut self, slot: u32, thread: u32) {
        self.live = self.live.saturating_sub(1);
        let (Some(free), Some(listed)) = (
            self.free.get_mut(thread as usize),
            self.is_donor.get_mut(thread as usize),
        ) else {
            return;
        };
        free.push_back(slot);
        if !std::mem::replace(listed, true) {
            self.donors.push(thread);
        }
    }

    /// Counts an operation of this thread on the slot. Returns the turn to wait for, if another thread had
    /// the last operation.
    pub fn pass(&mut self, slot: u32, thread: u32) -> Option<u32> {
        let slot = self.slots.get_mut(slot as usize)?;
        let wait = (slot.thread != thread).then_some(slot.turn);
        slot.turn = slot.turn.wrapping_add(1);
        slot.thread = thread;
        wait
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_thread_takes_its_own_slots_again() {
        let mut slots = Slots::default();
        slots.add_thread();
        let a = slots.take(0);
        assert_eq!(slots.pass(a, 0), None);
        slots.give_back(a, 0);
        assert_eq!(slots.take(0), a);
        assert_eq!(slots.pass(a, 0), None);
    }

    #[test]
    fn slots_are_bounded_by_what_is_live_when_another_thread_frees() {
        let mut slots = Slots::default();
        slots.add_thread();
        slots.add_thread();
        let mut queue = VecDeque::new();
        let mut waits = 0;
        for _ in 0..100_000 {
            let slot = slots.take(0);
            waits += usize::from(slots.pass(slot, 0).is_some());
            queue.push_back(slot);
            if queue.len() > 10 {
                let slot = queue.pop_front().unwrap();
                assert!(slots.pass(slot, 1).is_some());
                slots.give_back(slot, 1);
            }
        }
        assert!(slots.count() <= 2 * 11 + SPARE + 1, "{}", slots.count());
        assert!(waits > 90_000, "{waits}");
    }

    #[test]
    fn the_turn_is_the_number_of_operations_so_far() {
        let mut slots = Slots::default();
        slots.add_thread();
        slots.add_thread();
        let slot = slots.take(0);
        assert_eq!(slots.pass(slot, 0), None);
        assert_eq!(slots.pass(slot, 0), None);
        assert_eq!(slots.pass(slot, 1), Some(2));
        assert_eq!(slots.pass(slot, 0), Some(3));
    }
}
