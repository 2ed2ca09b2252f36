//! The process: what it prints, how it ends, who it is, and the work that blocks its threads.

pub mod atomic_file;
pub mod console;
pub mod exit;
pub(crate) mod identity;
pub mod jobs;
pub mod logging;
pub mod service_manager;
