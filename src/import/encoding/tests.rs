//! Text in every encoding is detected and decoded; bytes that are not text are marked.

use std::io::Read as _;

use proptest::prelude::*;

use super::*;

fn decoded(bytes: &[u8], encoding: Encoding) -> Vec<u8> {
    let mut text = Vec::new();
    Decoder::new(bytes, encoding).read_to_end(&mut text).expect("reads from memory");
    text
}

fn encoding(name: &str) -> Encoding {
    name.parse().unwrap_or_else(|error| panic!("{error}"))
}

fn detected(bytes: &[u8]) -> Detected {
    detect(bytes, None).expect("reads from memory")
}

#[test]
fn encodings_have_several_names() {
    for (names, name) in [
        (&["utf-8", "UTF8"][..], "UTF-8"),
        (&["gbk", "GB18030", "gb2312", "cp936"], "GB18030"),
        (&["big5"], "Big5"),
        (&["shift-jis", "Shift_JIS", "sjis", "cp932"], "Shift_JIS"),
        (&["utf16", "UTF-16", "utf-16le"], "UTF-16LE"),
        (&["utf-16be"], "UTF-16BE"),
        (&["latin1", "latin-1", "iso-8859-1", "windows-1252", "cp1252"], "windows-1252"),
        (&["cp1251", "windows-1251"], "windows-1251"),
    ] {
        for label in names {
            assert_eq!(encoding(label).to_string(), name, "{label}");
        }
    }
    assert!("klingon".parse::<Encoding>().is_err());
}

#[test]
fn encoding_is_detected_from_lines() {
    let german = "Telefon;Name;Straße\n+491512345678;Jörg Müller;Königstraße 5\n+491512345679;Jürgen Größe;Äußere Gasse 3\n";
    let russian = "Телефон;Имя\n+79161234567;Мария Ивановна\n+79161234568;Пётр Сергеевич\n";
    let chinese = "手机号,姓名,地址\n13800138000,王小明,北京市海淀区中关村大街\n13800138001,李秀英,上海市浦东新区\n";
    let taiwanese = "手機號碼,姓名,地址\n0912345678,陳怡君,臺北市中正區重慶南路\n0912345679,林志偉,高雄市前鎮區\n";
    let japanese = "電話番号,名前,住所\n09012345678,山田太郎,東京都千代田区\n09012345679,さとうはなこ,大阪府大阪市\n";
    for (text, label) in [
        (german, "windows-1252"),
        (russian, "windows-1251"),
        (chinese, "gb18030"),
        (taiwanese, "big5"),
        (japanese, "shift_jis"),
    ] {
        let bytes = encoding(label).encode(text.as_bytes());
        assert_eq!(detected(&bytes), Detected::Encoding(encoding(label)), "{label}");
        assert_eq!(decoded(&bytes, encoding(label)), text.as_bytes(), "{label}");
    }
}

#[test]
fn few_broken_lines_leave_the_file_utf8() {
    let mut bytes = "名,x\n".repeat(20).into_bytes();
    bytes.extend_from_slice(b"\xc4\xe3,y\n");
    assert_eq!(detected(&bytes), Detected::Encoding(Encoding::UTF8));
}

#[test]
fn mixed_encodings_are_reported_with_a_line_each() {
    let mut bytes = "phone,name\n1,李秀英\n".as_bytes().to_vec();
    bytes.extend_from_slice(&encoding("gbk").encode("2,王小明\n3,陈怡君\n".as_bytes()));
    assert_eq!(detected(&bytes), Detected::Mixed { utf8: 2, other: 3 });
}

#[test]
fn broken_characters_are_marked_and_written_back() {
    let gbk = encoding("gbk");
    let bytes = b"1,\xc4\xe3\xff\xff,x\n2,\xba\xc3\n";
    let text = decoded(bytes, gbk);
    assert!(std::str::from_utf8(&text).is_err());
    assert!(text.ends_with(",x\n2,好\n".as_bytes()), "{text:?}");
    assert_eq!(gbk.encode(&text), bytes);
}

#[test]
fn cut_utf16_is_marked_at_its_end() {
    let wide = encoding("utf-16");
    let mut bytes = wide.encode("1,你\n2,好".as_bytes());
    bytes.pop();
    let text = decoded(&bytes, wide);
    assert!(text.starts_with("1,你\n2,".as_bytes()));
    assert!(std::str::from_utf8(&text).is_err());
}

#[test]
fn utf16_is_recognized_by_nuls() {
    for label in ["utf-16le", "utf-16be"] {
        let bytes = encoding(label).encode("手机号,姓名\n13800138000,王小明\n".as_bytes());
        assert_eq!(Encoding::utf16_by_nuls(&bytes), Some(encoding(label)));
    }
    assert_eq!(Encoding::utf16_by_nuls(b"phone,name\n1,A\0nn\n"), None);
    assert_eq!(Encoding::utf16_by_nuls(b""), None);
}

proptest! {
    #[test]
    fn any_bytes_decode_in_bounded_space(bytes in prop::collection::vec(any::<u8>(), 0..200), label in prop::sample::select(vec!["gb18030", "big5", "shift_jis", "euc-kr", "iso-2022-jp", "utf-16le", "utf-16be", "windows-1252", "windows-1253"])) {
        let text = decoded(&bytes, encoding(label));
        prop_assert!(text.len() <= bytes.len() * 4 + 16);
    }

    #[test]
    fn encoded_text_decodes_to_itself(text in "[a-z,;\"\n你好吗ÄéЖ]{0,60}") {
        for label in ["gb18030", "utf-16le", "utf-16be"] {
            let bytes = encoding(label).encode(text.as_bytes());
            prop_assert_eq!(decoded(&bytes, encoding(label)), text.as_bytes());
        }
    }
}
