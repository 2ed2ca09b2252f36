//! The process: what it prints, how it ends, who it is, and the work that blocks its threads.

pub mod atomic_file;
pub mod console;
pub mod exit;
pub mod identity;
pub mod jobs;
pub mod logging;
pub mod service_manager;

/// Boxes the future of an asynchronous function that other crates await. Without it the function is compiled again in
/// each of them.
pub use async_recursion::async_recursion as boxed;
