//! Why a queue of another program cannot be read.

/// Why a queue of another program cannot be read.
#[derive(Debug, thiserror::Error)]
pub enum ConsumerError {
    #[error("the Redis url {reason}; write it like `redis://host:6379/0`")]
    Url { reason: String },
    #[error("`{place}` does not let smsq in: it wants another user or password")]
    Denied { place: String },
    #[error("key `{key}` of `{place}` is no list")]
    WrongType { place: String, key: String },
    #[error("`{place}` is a cluster, and the list's keys are on several of its nodes")]
    Cluster { place: String },
    #[error("`{place}` cannot be used: {reason}")]
    Server {
        place: String,
        reason: String,
        /// It may be back in a moment.
        is_away: bool,
    },
    #[error("another importer took over from this one, which was silent for too long")]
    TakenOver,
}

impl ConsumerError {
    pub fn hint(&self) -> Option<&'static str> {
        match self {
            Self::Denied { .. } => Some(
                "the password goes into SMSQ__REDIS__PASSWORD, the user into the url: `redis://user@host/0`",
            ),
            Self::WrongType { .. } => Some("`redis-cli TYPE KEY` tells what it is"),
            Self::Server { is_away: true, .. } => Some(
                "nothing is lost: run it again when the server is there; `rediss://` where it wants TLS",
            ),
            Self::TakenOver => Some("nothing is lost or doubled; run it again"),
            Self::Url { .. } | Self::Cluster { .. } | Self::Server { .. } => None,
        }
    }

    pub(super) fn is_away(&self) -> bool {
        matches!(self, Self::Server { is_away: true, .. })
    }
}
