use prometheus_client::encoding::{EncodeLabelSet, EncodeLabelValue, LabelValueEncoder};
use tokengate_api::{Outcome, SettleStatus};

/// A closed set of label values.
macro_rules! label_values {
    ($(#[$doc:meta])* $name:ident { $($(#[$about:meta])* $variant:ident => $text:literal),+ $(,)? }) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        pub enum $name {
            $($(#[$about])* $variant),+
        }

        impl $name {
            pub const ALL: &[Self] = &[$(Self::$variant),+];
        }

        impl EncodeLabelValue for $name {
            fn encode(&self, encoder: &mut LabelValueEncoder) -> Result<(), std::fmt::Error> {
                match self {
                    $(Self::$variant => EncodeLabelValue::encode(&$text, encoder)),+
                }
            }
        }
    };
}

label_values! {
    /// What was asked of the store.
    StoreCall { Reserve => "reserve", Settle => "settle", Extend => "extend", Explain => "explain", TopUp => "top_up", Reset => "reset", OpenHolds => "open_holds", Amend => "amend", Notes => "notes", Delivered => "delivered", Sweep => "sweep", Ping => "ping" }
}

label_values! {
    /// How the store answered.
    StoreOutcome {
        Ok => "ok",
        Timeout => "timeout",
        Unreachable => "unreachable",
        /// It answered with an error.
        Refused => "refused",
        /// What it holds or answers is not usable.
        Unusable => "unusable",
    }
}

label_values! {
    /// Why a call was not carried out.
    RefusedCall {
        /// As many calls as may be were being answered.
        Calls => "calls",
        /// Its body did not come in time.
        SlowBody => "slow_body",
        /// Its body is larger than it may be.
        TooLarge => "too_large",
        /// It cannot be understood.
        Malformed => "malformed",
        /// It has not brought the token.
        Unauthorized => "unauthorized",
    }
}

label_values! {
    /// What became of a reading of the policy file.
    ReloadOutcome { Loaded => "loaded", Refused => "refused" }
}

label_values! {
    /// What became of usage events.
    EventOutcome {
        Written => "written",
        /// No room was left: the oldest goes.
        Overflowed => "overflowed",
        /// The sink refused them for good.
        Rejected => "rejected",
        /// The service stopped before they were taken, and its memory was all that kept them.
        Abandoned => "abandoned",
        /// The service stopped before they were taken; the store keeps them for another one.
        Left => "left",
    }
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
pub struct BuildLabels {
    pub version: &'static str,
    pub git_hash: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
pub struct DecisionLabels {
    pub decision: &'static str,
    pub reason: String,
    pub limit: String,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
pub struct IdentifyLabels {
    pub known: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
pub struct LimitLabels {
    pub limit: String,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
pub struct SettleLabels {
    pub outcome: &'static str,
    pub status: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
pub struct TokenLabels {
    pub model: String,
    pub class: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
pub struct UnsettledLabels {
    pub status: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
pub struct StoreLabels {
    pub call: StoreCall,
    pub outcome: StoreOutcome,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
pub struct RefusedCallLabels {
    pub cause: RefusedCall,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
pub struct PolicyLabels {
    pub version: String,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
pub struct ReloadLabels {
    pub outcome: ReloadOutcome,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
pub struct EventLabels {
    pub outcome: EventOutcome,
}

pub fn outcome(outcome: Outcome) -> &'static str {
    match outcome {
        Outcome::Used => "used",
        Outcome::Estimated => "estimated",
        Outcome::Held => "held",
        Outcome::Released => "released",
    }
}

pub fn status(status: SettleStatus) -> &'static str {
    match status {
        SettleStatus::Settled => "settled",
        SettleStatus::AlreadySettled => "already_settled",
        SettleStatus::Booked => "booked",
        SettleStatus::Late => "late",
        SettleStatus::Unknown => "unknown",
    }
}
