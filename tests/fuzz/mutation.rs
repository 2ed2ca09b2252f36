//! Bent bytes, the same ones for the same seed.

/// A small generator of random numbers.
pub(crate) struct Random(u64);

impl Random {
    pub(crate) fn new(seed: u64) -> Self {
        Self(seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) ^ 0xD1B5_4A32_D192_ED03)
    }

    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        mixed ^ (mixed >> 31)
    }

    /// Below `end`; 0 where that is 0.
    pub(crate) fn below(&mut self, end: usize) -> usize {
        let end = end.max(1) as u64;
        usize::try_from(self.next() % end).unwrap_or_default()
    }

    pub(crate) fn pick<'a, T>(&mut self, from: &'a [T]) -> &'a T {
        &from[self.below(from.len())]
    }

    /// A few changes, some of which add one of `tokens`.
    pub(crate) fn bend(&mut self, bytes: &mut Vec<u8>, tokens: &[&[u8]]) {
        for _ in 0..self.below(6) {
            let at = self.below(bytes.len());
            match self.below(7) {
                0 if !bytes.is_empty() => bytes[at] = self.next().to_le_bytes()[0],
                1 => bytes.truncate(at),
                2 if !bytes.is_empty() => {
                    bytes.remove(at);
                }
                3 => {
                    let end = (at + self.below(40)).min(bytes.len());
                    let piece = bytes[at..end].to_vec();
                    let to = self.below(bytes.len());
                    bytes.splice(to..to, piece);
                }
                4 => {
                    let again = self.below(3_000);
                    let token = self.pick(tokens).repeat(again);
                    bytes.splice(at..at, token);
                }
                5 if !bytes.is_empty() => bytes[at] ^= 1 << self.below(8),
                _ => {
                    let token = self.pick(tokens).to_vec();
                    bytes.splice(at..at, token);
                }
            }
        }
    }
}
