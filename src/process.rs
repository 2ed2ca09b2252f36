//! Which process this is, and whether another one of this host is gone.

#[cfg(target_os = "linux")]
pub(crate) use linux::{boot_id, pid_namespace, started};
#[cfg(not(target_os = "linux"))]
pub(crate) use unknown::{boot_id, pid_namespace, started};

/// The host's name.
pub(crate) fn host() -> String {
    rustix::system::uname()
        .nodename()
        .to_string_lossy()
        .into_owned()
}

/// What tells this process from all others, in words without blanks between blanks.
pub(crate) fn identity() -> String {
    let pid = i64::from(std::process::id());
    let started = started(pid).unwrap_or(0);
    let word = |text: String| {
        if text.is_empty() {
            "-".to_owned()
        } else {
            text
        }
    };
    let (host, boot_id, namespace) = (word(host()), word(boot_id()), word(pid_namespace()));
    format!("{host} {boot_id} {namespace} {pid} {started}")
}

/// Whether that process ran on this host, and is certainly gone.
pub(crate) fn is_gone(identity: &str) -> bool {
    let words: Vec<&str> = identity.split(' ').collect();
    let [_, there, namespace, pid, began] = words[..] else {
        return false;
    };
    let (Ok(pid), Ok(began)) = (pid.parse::<i64>(), began.parse::<i64>()) else {
        return false;
    };
    let here = there != "-" && there == boot_id() && namespace == pid_namespace();
    here && started(pid) != Some(began)
}

/// What Linux tells of processes.
#[cfg(target_os = "linux")]
mod linux {
    use procfs::process::{ProcState, Process};

    pub(crate) fn boot_id() -> String {
        procfs::sys::kernel::random::boot_id().unwrap_or_default()
    }

    pub(crate) fn pid_namespace() -> String {
        let namespaces = Process::myself().and_then(|process| process.namespaces());
        namespaces
            .ok()
            .and_then(|all| {
                all.0
                    .get(std::ffi::OsStr::new("pid"))
                    .map(|pid| pid.identifier)
            })
            .map(|identifier| identifier.to_string())
            .unwrap_or_default()
    }

    /// When the process started, in ticks since the boot; `None` when it is gone or a zombie.
    pub(crate) fn started(pid: i64) -> Option<i64> {
        let stat = Process::new(i32::try_from(pid).ok()?).and_then(|process| process.stat());
        let stat = stat.ok()?;
        let gone = matches!(stat.state(), Ok(ProcState::Zombie | ProcState::Dead));
        if gone {
            None
        } else {
            i64::try_from(stat.starttime).ok()
        }
    }
}

/// Elsewhere nothing is known of processes: only heartbeats tell.
#[cfg(not(target_os = "linux"))]
mod unknown {
    pub(crate) fn boot_id() -> String {
        String::new()
    }

    pub(crate) fn pid_namespace() -> String {
        String::new()
    }

    pub(crate) fn started(_pid: i64) -> Option<i64> {
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    #[cfg(target_os = "linux")]
    fn a_process_of_this_host_is_known_to_live_or_to_be_gone() {
        let this = identity();
        assert!(!is_gone(&this), "{this}");
        let (rest, began) = this.rsplit_once(' ').expect("words");
        let began: i64 = began.parse().expect("a number");
        assert!(
            is_gone(&format!("{rest} {}", began - 1)),
            "the pid came again"
        );
        assert!(
            !is_gone("other another-boot 1 1 1"),
            "another host cannot be looked at"
        );
        assert!(!is_gone("what is this"));
    }
}
