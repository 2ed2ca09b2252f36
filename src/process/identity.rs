//! Identifies processes, checks whether one on this host has ended, and reads how busy the processors are.

#[cfg(target_os = "linux")]
use linux as system;
use smsq_message::text::printable_line;
#[cfg(not(target_os = "linux"))]
use unsupported as system;

use rustix::process::{Resource, Rlimit, getrlimit, getuid, setrlimit};
use serde::{Deserialize, Serialize};

pub use system::{ignores_hang_up, processor_times};

/// A process on any host. The start time distinguishes it from a later one with the same pid.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ProcessIdentity {
    pub host: String,
    /// Identifies the installation of the operating system; empty where it has none.
    pub machine_id: String,
    /// Which boot of the host; empty where it cannot be read.
    pub boot_id: String,
    /// Empty where it cannot be read.
    pub pid_namespace: String,
    pub pid: i64,
    /// In clock ticks since the boot; 0 where it cannot be read.
    pub started: i64,
}

impl ProcessIdentity {
    /// This process.
    pub fn current() -> Self {
        let pid = i64::from(std::process::id());
        Self {
            host: host(),
            machine_id: system::machine_id(),
            boot_id: system::boot_id(),
            pid_namespace: if system::sees_itself() {
                system::pid_namespace()
            } else {
                String::new()
            },
            pid,
            started: match system::inspect(pid) {
                Inspection::Running { started } => started,
                Inspection::Ended | Inspection::Hidden => 0,
            },
        }
    }

    /// Parses what `Display` wrote; `None` for any other text.
    pub fn parse(text: &str) -> Option<Self> {
        serde_json::from_str(text).ok()
    }

    /// Whether the process ran on this host and has certainly ended. One that cannot be inspected,
    /// such as another user's under `hidepid`, counts as running.
    pub fn is_gone(&self) -> bool {
        !self.boot_id.is_empty()
            && !self.pid_namespace.is_empty()
            && self.is_of_this_host()
            && self.boot_id == system::boot_id()
            && self.pid_namespace == system::pid_namespace()
            && system::sees_itself()
            && system::inspect(self.pid).proves_end(self.started)
    }

    /// Whether the process has ended, at the latest when this host was started again.
    pub fn has_ended(&self) -> bool {
        let is_rebooted = !self.machine_id.is_empty()
            && !self.boot_id.is_empty()
            && self.boot_id != system::boot_id();
        self.is_gone() || (is_rebooted && self.is_of_this_host())
    }

    /// Whether the process certainly runs on this host.
    pub fn is_running(&self) -> bool {
        let here = (system::boot_id(), system::pid_namespace());
        let is_here = !self.boot_id.is_empty()
            && (&self.boot_id, &self.pid_namespace) == (&here.0, &here.1)
            && self.is_of_this_host();
        let running = Inspection::Running { started: self.started };
        is_here && system::inspect(self.pid) == running
    }

    /// Clones of a virtual machine may have the same boot and the same namespace.
    fn is_of_this_host(&self) -> bool {
        let is_same_machine = self.machine_id.is_empty() || self.machine_id == system::machine_id();
        self.host == host() && is_same_machine
    }
}

fn host() -> String {
    let names = rustix::system::uname();
    names.nodename().to_string_lossy().into_owned()
}

/// Who runs this program, such as `ann@web1`; `uid 1000@web1` where the user has no name.
pub fn user_and_host() -> String {
    let names = ["USER", "LOGNAME"].map(std::env::var).into_iter().flatten();
    let user = names
        .map(|name| printable_line(&name).chars().take(100).collect())
        .find(|name: &String| !name.is_empty())
        .unwrap_or_else(|| format!("uid {}", getuid().as_raw()));
    format!("{user}@{}", host())
}

/// JSON.
impl std::fmt::Display for ProcessIdentity {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&serde_json::to_string(self).map_err(|_| std::fmt::Error)?)
    }
}

/// Allows this process as many open files as the system does: each request in flight has one, and the usual limit is
/// 1,024.
pub fn allow_open_files() {
    let limit = getrlimit(Resource::Nofile);
    let raised = Rlimit { current: limit.maximum, ..limit };
    // With fewer it still works, but opens connections again and again.
    setrlimit(Resource::Nofile, raised).unwrap_or_default();
}

/// How long the processors of this host were idle, and how long they exist, in clock ticks since the boot.
#[derive(Clone, Copy, Debug)]
pub struct ProcessorTimes {
    idle: u64,
    all: u64,
}

impl ProcessorTimes {
    /// The part of the time since `earlier` for which they were busy.
    #[expect(clippy::cast_precision_loss, reason = "some billion ticks")]
    pub fn busy_since(self, earlier: Self) -> f64 {
        let all = self.all.saturating_sub(earlier.all).max(1);
        let idle = self.idle.saturating_sub(earlier.idle);
        1.0 - idle as f64 / all as f64
    }
}

/// What this host knows about a pid.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Inspection {
    /// No process has it, or its process has ended and is a zombie.
    Ended,
    /// In clock ticks since the boot.
    Running { started: i64 },
    /// Its process exists, but this one may not read more about it.
    Hidden,
}

impl Inspection {
    /// Whether the process that had the pid and started at `started` (0: not known) has ended.
    fn proves_end(self, started: i64) -> bool {
        match self {
            Self::Ended => true,
            Self::Running { started: seen } => started != 0 && seen != started,
            Self::Hidden => false,
        }
    }
}

#[cfg(target_os = "linux")]
mod linux {
    use std::fs;

    use rustix::io::Errno;
    use rustix::process::{Pid, test_kill_process};

    use super::{Inspection, ProcessorTimes};

    pub(super) fn boot_id() -> String {
        let id = fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default();
        id.trim_end().to_owned()
    }

    pub(super) fn machine_id() -> String {
        let id = fs::read_to_string("/etc/machine-id").unwrap_or_default();
        id.trim_end().to_owned()
    }

    /// Whether `/proc` is that of this process's own pid namespace: otherwise its numbers are those of other processes.
    pub(super) fn sees_itself() -> bool {
        is_pid(&fs::read_link("/proc/self").unwrap_or_default(), std::process::id())
    }

    /// Whether this is where `/proc/self` leads for the process with this number.
    pub(super) fn is_pid(link: &std::path::Path, pid: u32) -> bool {
        link.as_os_str() == pid.to_string().as_str()
    }

    /// The number in a link such as `pid:[4026531836]`.
    pub(super) fn pid_namespace() -> String {
        let link = fs::read_link("/proc/self/ns/pid").unwrap_or_default();
        let number = link.to_string_lossy();
        let number = number.strip_prefix("pid:[").and_then(|rest| rest.strip_suffix(']'));
        number.unwrap_or_default().to_owned()
    }

    /// The times of all processors since the machine started: the first line of `/proc/stat`.
    pub fn processor_times() -> Option<ProcessorTimes> {
        let stat = fs::read_to_string("/proc/stat").ok()?;
        let fields = stat.lines().next()?.strip_prefix("cpu ")?;
        let times: Vec<u64> =
            fields.split_ascii_whitespace().map_while(|field| field.parse().ok()).collect();
        let idle = times.get(3)? + times.get(4)?;
        // Guests are counted in the first two fields, too.
        let all = times.iter().take(8).sum();
        Some(ProcessorTimes { idle, all })
    }

    /// Whether this process was started to ignore SIGHUP, as `nohup` does.
    pub fn ignores_hang_up() -> bool {
        let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
        status
            .lines()
            .find_map(|line| line.strip_prefix("SigIgn:"))
            .and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok())
            .is_some_and(|mask| mask & 1 == 1)
    }

    pub(super) fn inspect(pid: i64) -> Inspection {
        let raw = i32::try_from(pid).ok().filter(|raw| *raw > 0);
        let Some(known) = raw.and_then(Pid::from_raw) else {
            return Inspection::Hidden;
        };
        // /proc may hide a process that exists; a signal always finds it.
        if test_kill_process(known) == Err(Errno::SRCH) {
            return Inspection::Ended;
        }
        let stat = fs::read(format!("/proc/{pid}/stat")).unwrap_or_default();
        match parse_stat(&String::from_utf8_lossy(&stat)) {
            Some(("Z" | "X" | "x", _)) => Inspection::Ended,
            Some((_, started)) => Inspection::Running { started },
            None => Inspection::Hidden,
        }
    }

    /// The fields `state` and `starttime`: the 3rd and the 22nd. The 2nd is the name of the program in parentheses,
    /// which may contain spaces and parentheses.
    pub(super) fn parse_stat(stat: &str) -> Option<(&str, i64)> {
        let (_, fields) = stat.rsplit_once(')')?;
        let mut words = fields.split_ascii_whitespace();
        let state = words.next()?;
        let started = words.nth(18)?.parse().ok()?;
        Some((state, started))
    }
}

/// Elsewhere only heartbeats tell whether a process runs.
#[cfg(not(target_os = "linux"))]
mod unsupported {
    pub(super) fn boot_id() -> String {
        String::new()
    }

    pub(super) fn machine_id() -> String {
        String::new()
    }

    pub(super) fn sees_itself() -> bool {
        false
    }

    pub(super) fn pid_namespace() -> String {
        String::new()
    }

    pub fn processor_times() -> Option<super::ProcessorTimes> {
        None
    }

    pub fn ignores_hang_up() -> bool {
        false
    }

    pub(super) fn inspect(_pid: i64) -> super::Inspection {
        super::Inspection::Hidden
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn identity_is_read_back_from_its_text() {
        let this = ProcessIdentity::current();
        assert_eq!(ProcessIdentity::parse(&this.to_string()), Some(this));
        assert_eq!(ProcessIdentity::parse("what is this"), None);
    }

    #[test]
    #[cfg(target_os = "linux")]
    fn processors_are_busy_for_a_part_of_the_time() {
        let times = processor_times().expect("Linux has /proc/stat");
        assert!(times.idle <= times.all);
        let later = ProcessorTimes { idle: times.idle + 25, all: times.all + 100 };
        assert!((later.busy_since(times) - 0.75).abs() < 1e-9);
    }

    #[test]
    fn process_that_cannot_be_inspected_is_not_gone() {
        assert!(!Inspection::Hidden.proves_end(5));
        assert!(!Inspection::Hidden.proves_end(0));
        assert!(!Inspection::Running { started: 5 }.proves_end(5));
        // Its own start time could not be read when it wrote its identity.
        assert!(!Inspection::Running { started: 5 }.proves_end(0));
        assert!(Inspection::Running { started: 6 }.proves_end(5));
        assert!(Inspection::Ended.proves_end(0));
    }

    #[test]
    #[cfg(target_os = "linux")]
    fn state_and_start_are_read_after_any_program_name() {
        let rest = "S 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 987 20";
        for name in ["cat", "a b) (Z 1"] {
            let stat = format!("77 ({name}) {rest}");
            assert_eq!(system::parse_stat(&stat), Some(("S", 987)));
        }
        assert_eq!(system::parse_stat("77 (cat) S 1"), None);
        assert_eq!(system::parse_stat(""), None);
    }

    #[test]
    #[cfg(target_os = "linux")]
    fn numbers_of_another_namespace_prove_nothing() {
        for (link, sees_itself) in [("77", true), ("1077", false), ("7", false), ("", false)] {
            let link = std::path::Path::new(link);
            assert_eq!(system::is_pid(link, 77), sees_itself, "{}", link.display());
        }
        assert!(system::sees_itself());
    }

    #[test]
    #[cfg(target_os = "linux")]
    fn process_is_gone_once_it_is_a_zombie() {
        let mut child = std::process::Command::new("cat")
            .stdin(std::process::Stdio::piped())
            .spawn()
            .expect("a child");
        let pid = i64::from(child.id());
        let Inspection::Running { started } = system::inspect(pid) else {
            panic!("the child runs");
        };
        let identity = ProcessIdentity { pid, started, ..ProcessIdentity::current() };
        assert!(!identity.is_gone());
        let reused = ProcessIdentity { started: started - 1, ..identity.clone() };
        assert!(reused.is_gone(), "another process has its pid now");
        let unread = ProcessIdentity { started: 0, ..identity.clone() };
        assert!(!unread.is_gone());
        let elsewhere = ProcessIdentity { boot_id: "another".to_owned(), ..reused.clone() };
        assert!(!elsewhere.is_gone(), "another host cannot be inspected");
        let clones = [
            ProcessIdentity { host: "another".to_owned(), ..reused.clone() },
            ProcessIdentity { machine_id: "another".to_owned(), ..reused.clone() },
        ];
        for clone in &clones {
            assert!(!clone.is_gone() && !clone.has_ended(), "{clone:?}");
        }
        let nowhere = ProcessIdentity { pid_namespace: String::new(), ..reused };
        assert!(!nowhere.is_gone());
        drop(child.stdin.take());
        while system::inspect(pid) != Inspection::Ended {
            std::thread::yield_now();
        }
        assert!(identity.is_gone());
        child.wait().expect("an exit status");
        assert!(identity.is_gone());
    }
}
