//! Valid inputs from which the search starts, so that no corpus is kept, and what all targets check.
#![allow(dead_code, reason = "each target uses some of it")]

/// Changes an input of `size` bytes and returns its new size: it begins again with a sample, gets a part of one, or is
/// changed as libFuzzer does. The first byte of an input selects one of `rows`; the samples of a row are without it.
pub(crate) fn mutate(rows: &[&[&[u8]]], data: &mut [u8], size: usize, seed: u32) -> usize {
    let most = data.len();
    let mut size = size.min(most);
    let mut random = seed;
    let mut below = |end: usize| {
        random = random.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        (random >> 8) as usize % end.max(1)
    };
    match below(16) {
        0 | 1 if most > 1 => {
            let row = below(rows.len());
            let samples = rows[row];
            let sample = samples[below(samples.len())];
            let length = sample.len().min(most - 1);
            data[0] = u8::try_from(row).expect("fewer rows");
            data[1..=length].copy_from_slice(&sample[..length]);
            size = 1 + length;
        }
        2..=4 if size > 0 => {
            let samples = rows[usize::from(data[0]) % rows.len()];
            let sample = samples[below(samples.len())];
            let from = below(sample.len());
            let part = &sample[from..sample.len().min(from + 1 + below(24))];
            let at = 1 + below(size);
            let at = at.min(size);
            let part = &part[..part.len().min(most - size)];
            data.copy_within(at..size, at + part.len());
            data[at..at + part.len()].copy_from_slice(part);
            size += part.len();
        }
        _ => {}
    }
    libfuzzer_sys::fuzzer_mutate(data, size, most)
}

/// The text of an input.
pub(crate) fn lossy(text: &[u8]) -> std::borrow::Cow<'_, str> {
    String::from_utf8_lossy(text)
}

/// Fails where what is shown to people has more than `most` bytes or characters that a terminal must not get.
pub(crate) fn check_shown(shown: &str, most: usize) {
    assert!(shown.len() <= most, "{} bytes: {shown}", shown.len());
    assert!(shown.chars().all(smsq::text::is_printable), "{shown:?}");
}

/// Fails unless the values of a message are an object of texts that every database can store.
pub(crate) fn check_params(params: &str) {
    let values: serde_json::Map<String, serde_json::Value> =
        serde_json::from_str(params).expect("an object");
    for (name, value) in values {
        let value = value.as_str().expect("a text");
        assert!(!name.contains('\0') && !value.contains('\0'), "{params}");
    }
}
