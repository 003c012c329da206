//! Values by thread, with dense numbers of their own. Most events are of the same thread as the event
//! before, so they need no look-up.

use rustc_hash::FxHashMap;

#[derive(Debug)]
pub struct Threads<T> {
    states: Vec<T>,
    /// Numbers by thread id.
    numbers: FxHashMap<u32, u32>,
    /// The last thread, and its number.
    latest: Option<(u32, u32)>,
}

impl<T> Default for Threads<T> {
    fn default() -> Self {
        Self {
            states: Vec::new(),
            numbers: FxHashMap::default(),
            latest: None,
        }
    }
}

impl<T: Default> Threads<T> {
    #[inline]
    pub fn number(&mut self, thread: u32) -> u32 {
        match self.latest {
            Some((latest, number)) if latest == thread => number,
            _ => self.look_up(thread),
        }
    }

    #[cold]
    fn look_up(&mut self, thread: u32) -> u32 {
        let next = self.states.len() as u32;
        let number = *self.numbers.entry(thread).or_insert(next);
        if number == next {
            self.states.push(T::default());
        }
        self.latest = Some((thread, number));
        number
    }

    #[inline]
    pub fn of(&mut self, thread: u32) -> &mut T {
        let number = self.number(thread);
        &mut self.states[number as usize]
    }

    /// The value of a thread by its number.
    #[inline]
    pub fn state(&mut self, number: u32) -> &mut T {
        &mut self.states[number as usize]
    }
}
