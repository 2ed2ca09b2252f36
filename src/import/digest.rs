//! SHA-256 in lower-case hex, which is how files, texts and keys are told apart.

use std::fmt::Write;

use sha2::{Digest, Sha256};

/// The digest of a short text.
pub(super) fn of(text: &str) -> String {
    hex(Sha256::new_with_prefix(text))
}

/// What a digest that was fed piece by piece comes to.
pub(super) fn hex(hasher: Sha256) -> String {
    let mut hex = String::with_capacity(64);
    for byte in hasher.finalize() {
        write!(hex, "{byte:02x}").expect("a string takes whatever is written");
    }
    hex
}
