//! Waiting for the database at the start of a command that runs for long: a host may start before its database does.

use std::time::Duration;

use smsq_process::service_manager::ServiceManager;

use super::{Context, message_and_hint, temporary};

/// How long a database that is unavailable is left alone before it is tried again.
const PAUSE: Duration = Duration::from_secs(1);

impl Context {
    /// Runs the start of a command. If the command runs for long and `waits`, it is run again and again while the database is unavailable or locked, or
    /// has a full disk. Every other error, such as a wrong password, ends the command at once. Until a command listens
    /// to signals, they end the process.
    pub(super) async fn when_available<T>(
        &self,
        waits: bool,
        start: impl AsyncFn() -> anyhow::Result<T>,
    ) -> anyhow::Result<T> {
        let mut service = ServiceManager::default();
        let mut is_waiting = false;
        loop {
            let error = match start().await {
                Err(error) if waits && temporary(&error).is_some() => error,
                ended => {
                    if is_waiting && ended.is_ok() {
                        self.console.status("the database is available");
                    }
                    return ended;
                }
            };
            let (reason, hint) = message_and_hint(&error);
            if !is_waiting {
                is_waiting = true;
                let hint = hint.map(|hint| format!(" ({hint})")).unwrap_or_default();
                self.console.warn(&format!("{reason}; waiting for the database{hint}"));
            }
            // The service manager ends a service that is not ready within its time.
            service.ready();
            service.alive();
            service.status(&format!("waiting for the database: {reason}"));
            tokio::time::sleep(PAUSE).await;
        }
    }
}
