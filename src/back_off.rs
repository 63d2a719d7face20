//! How long to wait before a call that failed is made again.

const FIRST_MS: u64 = 200;
const LONGEST_MS: u64 = 5_000;

#[derive(Debug, Default)]
pub struct BackOff {
    ms: u64,
}

impl BackOff {
    /// After a failure: twice as long as before, or down to half of that. `jitter` is any random number.
    pub fn next_ms(&mut self, jitter: u64) -> u64 {
        self.ms = (self.ms * 2).clamp(FIRST_MS, LONGEST_MS);
        let half = self.ms / 2;
        half + jitter % (half + 1)
    }

    pub fn reset(&mut self) {
        self.ms = 0;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_grows_has_an_end_and_begins_again() {
        let mut back_off = BackOff::default();
        let shortest: Vec<_> = (0..7).map(|_| back_off.next_ms(0)).collect();
        assert_eq!(shortest, [100, 200, 400, 800, 1_600, 2_500, 2_500]);
        assert!((2_500..=5_000).contains(&back_off.next_ms(u64::MAX)));
        back_off.reset();
        assert_eq!(back_off.next_ms(100), 200);
    }
}
