//! Phone numbers as vendors in mainland China write them: without country code.

use smsq_message::phone::Phone;

pub(super) fn is_mainland(phone: &Phone) -> bool {
    phone.as_str().starts_with("+86")
}

/// Mainland numbers without country code, others with it, all without `+`.
pub(super) fn national_number(phone: &Phone) -> &str {
    let digits = phone.digits();
    match digits.strip_prefix("86") {
        Some(mainland) if mainland.len() == 11 => mainland,
        _ => digits,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mainland_numbers_lose_their_country_code() {
        for (phone, expected) in [
            ("+8613812345678", "13812345678"),
            ("+85261234567", "85261234567"),
            ("+447400123456", "447400123456"),
        ] {
            let phone = Phone::parse(phone, None).expect("a phone");
            assert_eq!(national_number(&phone), expected);
            assert_eq!(is_mainland(&phone), expected.len() == 11 && expected.starts_with('1'));
        }
    }
}
