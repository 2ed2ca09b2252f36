//! The cells of a sheet as texts.

use calamine::{Data, ExcelDateTime};

/// The serial number of the last day of the year 9999.
const LAST_DAY: f64 = 2_958_466.0;

/// What a person sees in the cell, but for the formats of numbers.
pub(super) fn shown(value: &Data) -> String {
    match value {
        Data::Float(number) => number.to_string(),
        Data::Bool(true) => "TRUE".to_owned(),
        Data::Bool(false) => "FALSE".to_owned(),
        Data::DateTime(moment) => date(moment),
        Data::DateTimeIso(text) => text
            .strip_suffix("T00:00:00")
            .unwrap_or(text)
            .replace('T', " "),
        Data::Empty => String::new(),
        other => other.to_string(),
    }
}

fn date(moment: &ExcelDateTime) -> String {
    let serial = moment.as_f64();
    // A phone in a column that somebody formatted as dates is still a phone.
    if !(0.0..LAST_DAY).contains(&serial) {
        return serial.to_string();
    }
    let (year, month, day, hour, minute, second, _) = moment.to_ymd_hms_milli();
    let time = match second {
        0 => format!("{hour:02}:{minute:02}"),
        second => format!("{hour:02}:{minute:02}:{second:02}"),
    };
    let is_midnight = (hour, minute, second) == (0, 0, 0);
    if serial < 1.0 || moment.is_duration() {
        return time;
    }
    let date = format!("{year:04}-{month:02}-{day:02}");
    if is_midnight {
        date
    } else {
        format!("{date} {time}")
    }
}

/// A column as spreadsheets call it: 0 is `A`, 26 is `AA`.
pub(super) fn letters(column: u32) -> String {
    let mut left = column + 1;
    let mut letters = Vec::new();
    while left > 0 {
        left -= 1;
        letters.push(char::from(
            b'A' + u8::try_from(left % 26).unwrap_or_default(),
        ));
        left /= 26;
    }
    letters.iter().rev().collect()
}
