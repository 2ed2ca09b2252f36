//! Cells of CSV files that are opened in a spreadsheet: one that the spreadsheet would calculate as a
//! formula is written with `'` before it, and read without.

use std::borrow::Cow;

/// The cell, with `'` before what a spreadsheet would take for a formula; numbers and phones stay.
/// Reading it without the `'` where [`is_guarded`] gives back exactly the cell.
pub fn guarded(cell: &[u8]) -> Cow<'_, [u8]> {
    if needs_guard(cell) {
        Cow::Owned([b"'", cell].concat())
    } else {
        Cow::Borrowed(cell)
    }
}

/// Whether the cell's first character is a `'` that [`guarded`] put there.
pub fn is_guarded(cell: &[u8]) -> bool {
    cell.strip_prefix(b"'").is_some_and(needs_guard)
}

/// A formula, or one behind quotes, which would otherwise lose a quote when it is read.
fn needs_guard(cell: &[u8]) -> bool {
    let quotes = cell.iter().take_while(|&&byte| byte == b'\'').count();
    match &cell[quotes..] {
        [b'=' | b'@' | b'\t' | b'\r' | b'\n', ..] => true,
        [b'+' | b'-', number @ ..] => quotes > 0 || !is_number(number),
        _ => false,
    }
}

/// Digits with what may stand between them in a number or a phone, so that nothing can be called.
fn is_number(text: &[u8]) -> bool {
    text.iter().any(u8::is_ascii_digit)
        && text
            .iter()
            .all(|byte| byte.is_ascii_digit() || b" .,()/-".contains(byte))
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
    fn numbers_phones_and_text_stay_as_they_are() {
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
        fn a_guarded_cell_reads_back_exactly(cell in "['=+@\t1x-]{0,5}.{0,5}") {
            let written = shown(&cell);
            let read = &written[usize::from(is_guarded(written.as_bytes()))..];
            prop_assert_eq!(read, cell);
        }
    }
}
