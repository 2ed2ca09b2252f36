//! Names of phone columns in many languages.

/// Names that always mean a phone; lower case, without spaces and punctuation.
#[rustfmt::skip]
const PHONE: &[&str] = &[
    "phone", "phones", "phonenumber", "phoneno", "phonenr", "mobile", "mobilephone", "mobilenumber", "mobileno",
    "mobilephonenumber", "msisdn", "tel", "telno", "telnumber", "telephone", "telephonenumber", "cell", "cellphone",
    "cellnumber", "cellphonenumber", "cellular", "contactnumber", "smsnumber", "whatsapp",
    // Chinese
    "手机", "手机号", "手机号码", "手机电话", "电话", "电话号码", "联系电话", "联系手机", "移动电话", "联系人电话",
    "手機", "手機號", "手機號碼", "電話", "電話號碼", "聯絡電話", "聯繫電話", "行動電話",
    // Japanese, Korean
    "電話番号", "携帯", "携帯電話", "携帯番号", "携帯電話番号", "전화", "전화번호", "휴대폰", "휴대폰번호", "휴대전화", "핸드폰", "핸드폰번호",
    // German, Dutch, Scandinavian, Finnish
    "telefon", "telefonnummer", "telefonnr", "handy", "handynummer", "handynr", "mobil", "mobilnummer", "mobilnr",
    "mobiltelefon", "rufnummer", "mobilfunknummer", "telefoon", "telefoonnummer", "mobiel", "mobielnummer", "gsm",
    "gsmnummer", "mobilnummeret", "telefonnumret", "puhelin", "puhelinnumero", "matkapuhelin",
    // French, Spanish, Portuguese, Italian, Romanian
    "téléphone", "numérodetéléphone", "numerodetelephone", "téléphoneportable", "portable", "teléfono", "telefono",
    "teléfonomóvil", "móvil", "movil", "celular", "númerodeteléfono", "telefone", "telemóvel", "telemovel",
    "númerodetelefone", "cellulare", "numeroditelefono", "telefonmobil", "numărdetelefon",
    // Polish, Czech, Hungarian, Turkish, Greek
    "numertelefonu", "nrtelefonu", "komórka", "telefonkomórkowy", "telefonníčíslo", "telefonszám", "ceptelefonu",
    "cep", "telefonnumarası", "τηλέφωνο", "κινητό",
    // Russian, Ukrainian
    "телефон", "номертелефона", "мобильный", "мобильныйтелефон", "сотовый", "номертелефону", "мобільний",
    // Arabic, Persian, Hebrew, Hindi
    "هاتف", "الهاتف", "رقمالهاتف", "جوال", "الجوال", "رقمالجوال", "موبايل", "تلفن", "موبایل", "شمارهتلفن", "טלפון", "נייד", "फोन", "मोबाइल",
    // Vietnamese, Thai, Indonesian
    "điệnthoại", "sốđiệnthoại", "sdt", "โทรศัพท์", "เบอร์โทร", "เบอร์โทรศัพท์", "มือถือ", "telepon", "nomortelepon", "nohp", "nomorhp", "hp",
];

/// Names that may mean a phone if no column has a better one.
#[rustfmt::skip]
const POSSIBLE: &[&str] = &[
    "number", "numbers", "recipient", "recipients", "to", "destination", "contact", "nummer", "numéro", "numero",
    "número", "номер", "号码", "號碼", "番号", "번호", "联系方式", "聯絡方式", "رقم",
];

pub(super) fn is_phone(column: &str) -> bool {
    PHONE.contains(&bare(column).as_str())
}

pub(super) fn may_be_phone(column: &str) -> bool {
    POSSIBLE.contains(&bare(column).as_str())
}

fn bare(column: &str) -> String {
    let kept = |character: &char| {
        !character.is_whitespace()
            && !character.is_ascii_punctuation()
            && !"（）：．・".contains(*character)
    };
    column
        .chars()
        .filter(kept)
        .flat_map(char::to_lowercase)
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_in_normal_form() {
        for name in PHONE.iter().chain(POSSIBLE) {
            assert_eq!(&bare(name), name);
        }
    }

    #[test]
    fn other_columns_are_not_phones() {
        for word in [
            "name",
            "email",
            "city",
            "invoice number",
            "phone model",
            "content",
            "smsq_line",
        ] {
            assert!(!is_phone(word) && !may_be_phone(word), "{word}");
        }
    }
}
