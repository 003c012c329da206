//! Which copies are recorded: all, or those that the points of a Poisson process over the thread's copied
//! bytes fall on, so that each byte has the same chance.
//!
//! Invariant: a thread's `left` is above 0 only if the functions below are known and copies are sampled. So
//! the count-down alone decides whether a wrapper may jump on.

use std::arch::global_asm;

use crate::arch;

/// How many bytes go by uncounted where nothing is recorded.
const NEVER: i64 = i64::MAX / 2;
/// ln 2, times 2^16.
const LN_2: u64 = 45_426;

// The thread's own: bytes until the next sample, and the state of its random numbers, 0 at first.
global_asm!(
    ".section .tbss,\"awT\",@nobits",
    ".hidden larder_copies_left",
    ".globl larder_copies_left",
    ".type larder_copies_left, @object",
    ".size larder_copies_left, 16",
    ".balign 16",
    "larder_copies_left:",
    ".zero 16",
    ".text",
);

#[repr(C)]
pub struct Own {
    left: i64,
    random: u64,
}

#[inline(always)]
pub fn left() -> i64 {
    // SAFETY: the thread's own.
    unsafe { (*arch::own()).left }
}

#[inline(always)]
pub fn set_left(left: i64) {
    // SAFETY: the thread's own.
    unsafe { (*arch::own()).left = left };
}

/// Whether a copy whose bytes used up what was left is recorded, if not all are; sets what is left from here.
pub fn is_chosen(rate: i64, bytes: usize) -> bool {
    // SAFETY: the thread's own, and a signal handler in between only draws one number more.
    let own = unsafe { &mut *arch::own() };
    match rate {
        ..0 => {
            own.left = NEVER;
            false
        }
        _ => {
            let first = own.random == 0;
            if first {
                own.random = (arch::ticks() ^ (&raw const *own as u64)) | 1;
            }
            let gap = distance(rate as u64, next(&mut own.random));
            own.left = match first {
                true => gap.saturating_sub(bytes as i64),
                false => gap,
            };
            let chosen = !first || own.left <= 0;
            if first && chosen {
                own.left = distance(rate as u64, next(&mut own.random));
            }
            chosen
        }
    }
}

/// A number in which all bits are random (xorshift64*, Vigna 2016).
fn next(state: &mut u64) -> u64 {
    *state ^= *state >> 12;
    *state ^= *state << 25;
    *state ^= *state >> 27;
    state.wrapping_mul(0x2545_f491_4f6c_dd1d)
}

/// Exponentially distributed with this mean: -ln(random / 2^64) × mean, in integers, as floating point would
/// set flags that the program may read.
fn distance(mean: u64, random: u64) -> i64 {
    let random = random | 1;
    let zeros = u64::from(random.leading_zeros());
    let mut mantissa = (random << zeros) >> 32;
    let mut fraction = 0;
    for _ in 0..16 {
        mantissa = (mantissa * mantissa) >> 31;
        let bit = mantissa >> 32;
        mantissa >>= bit;
        fraction = fraction << 1 | bit;
    }
    let log2 = ((zeros + 1) << 16) - fraction;
    let distance = (u128::from(log2 * LN_2) * u128::from(mean)) >> 32;
    i64::try_from(distance).unwrap_or(NEVER).max(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn distances_are_exponential() {
        let (mean, count) = (65_536, 200_000);
        let mut state = 12_345;
        let drawn: Vec<i64> = (0..count)
            .map(|_| distance(mean, next(&mut state)))
            .collect();
        let average = drawn.iter().sum::<i64>() as f64 / count as f64;
        // Five standard errors, and what 16 bits of the logarithm lose.
        assert!((average / mean as f64 - 1.0).abs() < 0.012, "{average}");
        for (times, chance) in [(0.1, 0.904_8), (1.0, 0.367_9), (3.0, 0.049_8)] {
            let limit = (mean as f64 * times) as i64;
            let beyond = drawn.iter().filter(|d| **d > limit).count() as f64 / count as f64;
            assert!((beyond - chance).abs() < 0.006, "{times}: {beyond}");
        }
    }

    /// Estimates bytes by what is chosen, with the weight that readers use.
    #[test]
    fn the_chosen_ones_estimate_calls_and_bytes() {
        for size in [16usize, 1000, 100_000, 1 << 20] {
            let rate = 65_536;
            let copies = (1usize << 31) / size.max(1 << 10);
            set_left(0);
            let mut chosen = 0u64;
            for _ in 0..copies {
                let now = left() - size as i64;
                set_left(now);
                chosen += u64::from(now <= 0 && is_chosen(rate, size));
            }
            let chance = 1.0 - (-(size as f64) / rate as f64).exp();
            let expected = copies as f64 * chance;
            let error = (chosen as f64 - expected).abs();
            assert!(
                error < 6.0 * expected.sqrt().max(1.0),
                "{size}: {chosen} for {expected}"
            );
        }
        set_left(0);
    }

    #[test]
    fn without_a_recorder_nearly_all_is_left() {
        assert!(!is_chosen(-1, 10));
        assert_eq!(left(), NEVER);
        set_left(0);
    }
}
