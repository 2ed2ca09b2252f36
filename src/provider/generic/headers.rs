//! The headers of a generic request: those that are always the same, and those with placeholders.

use http::header::{CONTENT_LENGTH, CONTENT_TYPE, TRANSFER_ENCODING};
use http::{HeaderMap, HeaderName, HeaderValue};

use super::template::{Templates, Text, Values, rejected};
use crate::provider::ProviderError;
use crate::provider::stanza::Stanza;
use crate::sms::Outcome;

#[derive(Default)]
pub(super) struct Headers {
    constant: HeaderMap,
    /// Those that differ from message to message.
    texts: Vec<(HeaderName, Text)>,
}

impl Headers {
    pub(super) fn fill(
        &self,
        headers: &mut HeaderMap,
        kind: Option<HeaderValue>,
        templates: &Templates,
        values: &Values<'_>,
    ) -> Result<(), Outcome> {
        if let Some(kind) = kind {
            headers.insert(CONTENT_TYPE, kind);
        }
        for (name, value) in &self.constant {
            headers.insert(name.clone(), value.clone());
        }
        for (name, text) in &self.texts {
            let filled = templates.fill(text, values)?;
            let mut value = HeaderValue::from_str(&filled)
                .map_err(|_| rejected(format!("header `{name}` cannot carry this value")))?;
            value.set_sensitive(true);
            headers.insert(name.clone(), value);
        }
        Ok(())
    }

    pub(super) fn read(
        stanza: &Stanza<'_>,
        templates: &mut Templates,
    ) -> Result<Self, ProviderError> {
        let mut headers = Self::default();
        for (name, value) in stanza.section("headers")? {
            let key = format!("headers.{name}");
            let header = HeaderName::try_from(&name)
                .map_err(|_| stanza.fault(&key, "is no name of a header"))?;
            if [CONTENT_LENGTH, TRANSFER_ENCODING].contains(&header) {
                return Err(stanza.fault(&key, "is set by smsq"));
            }
            let source = value
                .as_str()
                .ok_or_else(|| stanza.fault(&key, "must be a text"))?;
            let text = templates.add(stanza, &key, source)?;
            if !text.is_constant() {
                headers.texts.push((header, text));
                continue;
            }
            let filled = templates.constant(stanza, &key, &text)?;
            let mut value = HeaderValue::from_str(&filled)
                .map_err(|_| stanza.fault(&key, "holds a character that no header can carry"))?;
            value.set_sensitive(true);
            headers.constant.insert(header, value);
        }
        Ok(headers)
    }

    pub(super) fn names(&self, root: &str) -> bool {
        self.texts.iter().any(|(_, text)| text.names(root))
    }
}
