//! Defects, to check that `smsq prove` finds them: a build with the feature `broken` has the one that the environment
//! variable `SMSQ_BROKEN` names. Builds without the feature have none.

/// A promise that this program breaks on purpose.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Defect {
    /// A result settles its message whatever claim the message has now.
    Fence,
    /// A claim is not recorded before the request.
    LateClaim,
    /// An acceptance counts again when its commit is repeated.
    SettleTwice,
    /// Each permit is given twice.
    PermitTwice,
    /// A worker releases messages that it is sending.
    Orphans,
    /// A message in doubt is sent again after its provider has forgotten the reference.
    LateResend,
    /// A 503 counts as certainly not accepted.
    CertainStatus,
    /// A request starts before its mark is written.
    LateMark,
}

#[cfg(feature = "broken")]
impl Defect {
    /// Whether this program has it.
    pub fn is_on(self) -> bool {
        use std::sync::LazyLock;
        static NAME: LazyLock<String> =
            LazyLock::new(|| std::env::var("SMSQ_BROKEN").unwrap_or_default());
        let name = match self {
            Self::Fence => "fence",
            Self::LateClaim => "late-claim",
            Self::SettleTwice => "settle-twice",
            Self::PermitTwice => "permit-twice",
            Self::Orphans => "orphans",
            Self::LateResend => "late-resend",
            Self::CertainStatus => "certain-status",
            Self::LateMark => "late-mark",
        };
        *NAME == name
    }
}

#[cfg(not(feature = "broken"))]
impl Defect {
    pub const fn is_on(self) -> bool {
        let _ = self;
        false
    }
}
