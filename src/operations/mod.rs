//! What people change, whichever way they ask for it: the command line, the page and the API are doors to it.

mod campaign;

pub use campaign::{
    Actor, CampaignAction, ChangeError, Permitted, Refused, change_settings, change_state, permit,
};
