//! The fields of the steps: those of an upload, under the names and with the errors of `smsq import`.

use crate::intake::{ImportField, UploadRequest};

/// Roles of columns, each with a field of its own.
const ROLES: [&str; 2] = ["phone", "content"];
/// What numbers without `+` are.
const NUMBERS: [&str; 2] = ["national", "international"];

fn role_of(field: &ImportField) -> Option<&str> {
    let (role, _) = field.value.split_once('=')?;
    (field.name == "column").then(|| role.trim())
}

/// What was entered in a field of a form.
pub(super) fn value(request: &UploadRequest, name: &str) -> String {
    if ROLES.contains(&name) {
        let mut fields = request.fields.iter();
        let found = fields.find(|field| role_of(field) == Some(name));
        let column = found.and_then(|field| field.value.split_once('='));
        return column.map_or_else(String::new, |(_, column)| column.to_owned());
    }
    if name == "numbers" {
        let chosen = NUMBERS.into_iter().find(|numbers| request.is_on(numbers));
        return chosen.unwrap_or_default().to_owned();
    }
    request.value(name).unwrap_or_default().to_owned()
}

/// Sets what was entered in a field of a form; nothing removes it.
pub(super) fn set(request: &mut UploadRequest, name: &str, entered: &str) {
    let text = entered.trim();
    let is_role = ROLES.contains(&name);
    request.fields.retain(|field| match name {
        _ if is_role => role_of(field) != Some(name),
        "numbers" => !NUMBERS.contains(&field.name.as_str()),
        _ => field.name != name,
    });
    if text.is_empty() {
        return;
    }
    let (name, value) = match name {
        _ if is_role => ("column", format!("{name}={text}")),
        "numbers" => (text, "true".to_owned()),
        // Line breaks are part of it.
        "text" => (name, entered.replace("\r\n", "\n")),
        _ => (name, text.to_owned()),
    };
    request.fields.push(ImportField { name: name.to_owned(), value });
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_of_forms_become_those_of_an_upload() {
        let mut request = UploadRequest {
            fields: Vec::new(),
            posted_by: "ann".to_owned(),
            may_change: true,
            is_draft: false,
        };
        for (name, entered) in [
            ("phone", "手机 号=1"),
            ("content", "text"),
            ("numbers", "national"),
            ("numbers", "international"),
            ("text", " Hi\r\nthere "),
            ("rate", " 5/s "),
        ] {
            set(&mut request, name, entered);
        }
        let written: Vec<(&str, &str)> = request
            .fields
            .iter()
            .map(|field| (field.name.as_str(), field.value.as_str()))
            .collect();
        assert_eq!(
            written,
            [
                ("column", "phone=手机 号=1"),
                ("column", "content=text"),
                ("international", "true"),
                ("text", " Hi\nthere "),
                ("rate", "5/s"),
            ]
        );
        assert_eq!(value(&request, "phone"), "手机 号=1");
        assert_eq!(value(&request, "numbers"), "international");
        for name in ["phone", "content", "numbers", "text", "rate"] {
            set(&mut request, name, " ");
            assert_eq!(value(&request, name), "");
        }
        assert!(request.fields.is_empty());
    }
}
