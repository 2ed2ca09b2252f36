//! Whether a database is for practice. It is decided once, when its tables are created, and everything that shows
//! counts takes it from there.

use serde::{Serialize, Serializer};

use crate::Store;

/// What the messages of a database are for. It has no default: what shows counts has to ask the database.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// They go to providers, and phones get them.
    Real,
    /// They go to the practice gateway only.
    Practice,
}

impl Mode {
    pub fn is_practice(self) -> bool {
        self == Self::Practice
    }

    /// The line above counts, as text; empty for a database that is not for practice.
    pub const fn notice(self) -> &'static str {
        match self {
            Self::Real => "",
            Self::Practice => "practice: no phone gets any of these messages\n",
        }
    }
}

impl From<bool> for Mode {
    fn from(is_practice: bool) -> Self {
        if is_practice { Self::Practice } else { Self::Real }
    }
}

/// As the value of a member `practice`.
impl Serialize for Mode {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        self.is_practice().serialize(serializer)
    }
}

impl Store {
    pub fn mode(&self) -> Mode {
        self.mode
    }
}
