//! Text encodings: names and byte order marks, detection, decoding with marked errors.

mod decode;
mod detect;
mod label;

pub(super) use self::decode::Decoder;
pub(super) use self::detect::{Detected, detect};
pub use self::label::{Encoding, EncodingError};
