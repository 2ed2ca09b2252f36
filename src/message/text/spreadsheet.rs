//! Protects CSV cells from formula injection: a cell that a spreadsheet would run as a formula is written with a `'`
//! before it, and read without.

use std::borrow::Cow;

/// Puts a `'` before a formula; numbers and phones are unchanged. Removing it where [`is_guarded`] restores the cell.
pub fn guarded(cell: &[u8]) -> Cow<'_, [u8]> {
    if needs_guard(cell) { Cow::Owned([b"'", cell].concat()) } else { Cow::Borrowed(cell) }
}

/// Whether the first character of the cell was added by [`guarded`].
pub fn is_guarded(cell: &[u8]) -> bool {
    cell.strip_prefix(b"'").is_some_and(needs_guard)
}

/// Whether the cell is a formula, or a formula after quotes, which would lose a quote when read.
fn needs_guard(cell: &[u8]) -> bool {
    let quotes = cell.iter().take_while(|&&byte| byte == b'\'').count();
    match &cell[quotes..] {
        [b'=' | b'@' | b'\t' | b'\r' | b'\n', ..] => true,
        [b'+' | b'-', number @ ..] => quotes > 0 || !is_number(number),
        _ => false,
    }
}

/// Whether the text has only digits and the punctuation of numbers and phones.
fn is_number(text: &[u8]) -> bool {
    text.iter().any(u8::is_ascii_digit)
        && text.iter().all(|byte| byte.is_ascii_digit() || b" .,()/-".contains(byte))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn shown(cell: &str) -> String {
        String::from_utf8_lossy(&guarded(cell.as_bytes())).into_owned()
    }

    #[test]
    fn formulas_are_guarded() {
        for cell in [
            "=cmd|' /C calc'!A0",
            "@SUM(A1)",
            "+1+cmd|x",
            "-2+3",
            "-",
            "\t=1",
            "\r=1",
            "'=1",
            "''-x",
        ] {
            assert_eq!(shown(cell), format!("'{cell}"));
        }
    }

    #[test]
    fn numbers_phones_and_text_are_unchanged() {
        for cell in [
            "+447400123456",
            "+44 (0)7400 123-456",
            "-12.5",
            "-1,200.00",
            "'tis",
            "'",
            "",
            "a=b",
            "1-2",
        ] {
            assert_eq!(shown(cell), cell);
        }
    }

    proptest! {
        #[test]
        fn guarded_cell_is_restored_exactly(cell in "['=+@\t1x-]{0,5}.{0,5}") {
            let written = shown(&cell);
            let read = &written[usize::from(is_guarded(written.as_bytes()))..];
            prop_assert_eq!(read, cell);
        }
    }
}
