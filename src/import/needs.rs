//! What the provider of a list needs of its rows. Some vendors send templates of theirs, filled with columns:
//! a row without them would be refused at send, so it is rejected here. An import knows no providers; it is
//! told what to ask.

use std::fmt;
use std::sync::Arc;

use crate::sms::NewSms;

/// What the recipient will see where that is not the content; or why the message could not be sent.
pub type RowCheck = Arc<dyn Fn(&NewSms) -> Result<Option<String>, String> + Send + Sync>;

/// What the provider that will send a list needs of its rows.
#[derive(Clone)]
pub struct ProviderRequirements {
    /// The provider's name.
    pub provider: String,
    /// The columns that fill its template; `content` is the text of the message.
    pub columns: Vec<String>,
    /// The template's text, where it is known: the text of a list that brings none.
    pub template: Option<String>,
    pub fits: RowCheck,
}

impl fmt::Debug for ProviderRequirements {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ProviderRequirements")
            .field("provider", &self.provider)
            .field("columns", &self.columns)
            .finish_non_exhaustive()
    }
}
