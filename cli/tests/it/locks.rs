//! Commands under a lock, and elections.

use std::process::{Command, Stdio};

use crate::deployment::{Deployment, Mode, in_each_mode};
use crate::process::Running;

in_each_mode!(
    lock_runs_command_with_its_fencing_token,
    command_does_not_run_if_the_lock_is_not_free_in_time,
    lock_that_waits_ends_with_the_code_of_the_signal,
    command_is_ended_when_the_lock_is_lost,
    restart_of_the_store_is_reported_as_cause_of_the_lost_lock,
    children_of_the_command_are_ended_with_it,
    command_reads_from_the_terminal_and_receives_its_signals,
    signals_are_forwarded_to_the_command,
    lock_of_killed_holder_is_free_after_the_lease,
    write_of_holder_that_was_suspended_is_refused,
    next_candidate_leads_after_the_leader_ends,
);

/// A lease that ends soon, but which a busy machine renews in time.
const LEASE: &str = "3s";

/// Returns `statestore lock l` with these options and a shell script, which can run `$BIN`.
fn locked(here: &Deployment, options: &[&str], script: &str) -> Command {
    let mut command = here.command(&["lock", "l"]);
    command.args(options).args(["--", "sh", "-c", script]);
    command.env("BIN", env!("CARGO_BIN_EXE_statestore"));
    command
}

/// Starts [`locked`].
fn holder(here: &Deployment, options: &[&str], script: &str) -> Running {
    Running::start(locked(here, options, script).stdin(Stdio::piped()))
}

fn lock_runs_command_with_its_fencing_token(mode: Mode) {
    let Some(here) = mode.start(&[]) else { return };
    let script = "echo $STATESTORE_FENCING_TOKEN; exit 7";
    let first = holder(&here, &[], script).end();
    assert_eq!(first.code, Some(7), "the exit code of the command: {first:?}");
    let second = holder(&here, &[], script).end();
    assert_eq!(first.text().trim().split(':').count(), 3, "a version: {first:?}");
    assert!(first.text() < second.text(), "greater for each holder: {first:?} {second:?}");
    here.run(&["get", "l"]).is(1, "");
    here.run(&["lock", "l", "--", "/there/is/no/such/command"]).fails(127, &["such/command"]);
    here.run(&["lock", "l", "--", "/dev/null"]).fails(126, &["/dev/null"]);
    here.run(&["get", "l"]).is(1, "");
    let killed = holder(&here, &[], "kill -9 $$").end();
    assert_eq!(killed.code, Some(137), "128 plus the signal, as in a shell");
}

fn command_does_not_run_if_the_lock_is_not_free_in_time(mode: Mode) {
    let Some(here) = mode.start(&[]) else { return };
    let mut first = holder(&here, &[], "echo held; read line; echo done");
    assert_eq!(first.line(), "held");
    let late = holder(&here, &["--wait", "200ms"], "echo never").end();
    late.fails(1, &["waiting for statestore-cli-", "--wait"]);
    first.write_line("go on");
    assert_eq!((first.line(), first.end().code), ("done".to_owned(), Some(0)));
    holder(&here, &["--wait", "1m"], "echo free").end().is(0, "free\n");
}

fn lock_that_waits_ends_with_the_code_of_the_signal(mode: Mode) {
    let Some(here) = mode.start(&[]) else { return };
    let first = holder(&here, &[], "echo held; read line");
    assert_eq!(first.line(), "held");
    for (signal, code) in [("-INT", 130), ("-TERM", 143), ("-HUP", 129), ("-QUIT", 131)] {
        let second = holder(&here, &[], "echo never");
        assert!(second.complaint().contains("waiting for"));
        second.signal(signal);
        let ended = second.end();
        assert_eq!((ended.code, ended.text()), (Some(code), ""), "{signal}: {ended:?}");
    }
}

fn command_is_ended_when_the_lock_is_lost(mode: Mode) {
    let Some(here) = mode.start(&[]) else { return };
    // The first script ends at SIGTERM, the second ignores it.
    for (script, output) in [
        ("trap 'echo ending; exit 3' TERM; echo held; while :; do sleep 0.02; done", "ending\n"),
        ("trap '' TERM; echo held; while :; do sleep 0.02; done", ""),
    ] {
        let command = holder(&here, &["--lease", LEASE], script);
        assert_eq!(command.line(), "held");
        here.run(&["set", "l", "another holder"]).version();
        let ended = command.end();
        assert_eq!((ended.code, ended.text()), (Some(124), output), "{ended:?}");
        assert!(ended.err.contains("the lock is lost: another holder has it"), "{ended:?}");
        here.run(&["get", "l"]).is(0, "another holder");
        here.run(&["del", "l"]).is(0, "");
    }
}

fn restart_of_the_store_is_reported_as_cause_of_the_lost_lock(mode: Mode) {
    let Some(mut here) = mode.start(&[]) else { return };
    let command = holder(&here, &["--lease", "9s"], "echo held; while :; do sleep 0.02; done");
    assert_eq!(command.line(), "held");
    here.kill_store();
    here.start_store();
    let ended = command.end();
    ended.fails(124, &["the lock is lost: the store restarted, or another store replaced it"]);
}

fn children_of_the_command_are_ended_with_it(mode: Mode) {
    let Some(here) = mode.start(&[]) else { return };
    // The first child ends at SIGTERM. The second ignores it and outlives its parent.
    for trap in ["", "trap '' TERM; "] {
        let child = format!("{trap}while :; do sleep 0.02; done");
        let script = format!("sh -c \"{child}\" & trap 'exit 3' TERM; echo held; wait");
        let command = holder(&here, &["--lease", LEASE], &script);
        assert_eq!(command.line(), "held");
        here.run(&["set", "l", "another holder"]).version();
        // The output ends when all processes that could write to it have ended.
        let ended = command.end();
        assert_eq!(ended.code, Some(124), "{ended:?}");
        here.run(&["del", "l"]).is(0, "");
    }
}

fn command_reads_from_the_terminal_and_receives_its_signals(mode: Mode) {
    let Some(here) = mode.start(&[]) else { return };
    if Command::new("script").arg("--version").output().is_err() {
        return mode.skip("the command `script` is required for a terminal");
    }
    let script = "trap : INT; $BIN lock l -- sh -c 'echo reads; read line; echo got $line'; \
                  $BIN lock l -- sh -c 'echo sleeps; exec sleep 100'; echo ended $?; read line; echo and $line";
    let mut terminal = Command::new("script");
    terminal.args(["-qec", "bash -c \"$SCRIPT\"", "/dev/null"]).env("SCRIPT", script);
    terminal.env("BIN", env!("CARGO_BIN_EXE_statestore"));
    let is_set = here.command(&[]);
    let is_set = is_set.get_envs().filter_map(|(name, value)| Some((name, value?)));
    let mut terminal = Running::start(terminal.envs(is_set).stdin(Stdio::piped()));
    let prints = |terminal: &Running, word: &str| while !terminal.line().contains(word) {};
    prints(&terminal, "reads");
    terminal.write_line("me");
    prints(&terminal, "got me");
    prints(&terminal, "sleeps");
    terminal.write_line("\x03");
    prints(&terminal, "ended 130");
    prints(&terminal, "and");
    here.run(&["get", "l"]).is(1, "");
}

fn signals_are_forwarded_to_the_command(mode: Mode) {
    let Some(here) = mode.start(&[]) else { return };
    for (signal, code) in
        [("-TERM", 4), ("-INT", 5), ("-HUP", 6), ("-QUIT", 7), ("-USR1", 8), ("-ALRM", 9)]
    {
        let script = "trap 'exit 4' TERM; trap 'exit 5' INT; trap 'exit 6' HUP; trap 'exit 7' QUIT; \
                      trap 'exit 8' USR1; trap 'exit 9' ALRM; echo held; while :; do sleep 0.02; done";
        let command = holder(&here, &[], script);
        assert_eq!(command.line(), "held");
        command.signal(signal);
        assert_eq!(command.end().code, Some(code), "{signal}");
        here.run(&["get", "l"]).is(1, "");
    }
}

fn lock_of_killed_holder_is_free_after_the_lease(mode: Mode) {
    let Some(here) = mode.start(&[]) else { return };
    let first = holder(&here, &["--lease", "1s"], "echo held; exec sleep 3");
    assert_eq!(first.line(), "held");
    first.kill();
    let next = holder(&here, &["--lease", "1s", "--wait", "1m"], "echo mine").end();
    assert_eq!((next.code, next.text()), (Some(0), "mine\n"), "{next:?}");
}

fn write_of_holder_that_was_suspended_is_refused(mode: Mode) {
    let Some(here) = mode.start(&[]) else { return };
    let write =
        "$BIN set valve $STATESTORE_FENCING_TOKEN --fencing-token $STATESTORE_FENCING_TOKEN";
    let script = format!("echo held; read line; {write} >&2; echo $?; exec sleep 20");
    let mut suspended = holder(&here, &["--lease", LEASE], &script);
    assert_eq!(suspended.line(), "held");
    suspended.signal("-STOP");
    let next = holder(&here, &["--lease", "20s"], write).end();
    assert_eq!(next.code, Some(0), "{next:?}");
    let written = here.run(&["get", "valve"]);
    suspended.write_line("write");
    assert_eq!(suspended.line(), "2", "exit code of the refused write");
    suspended.signal("-CONT");
    let ended = suspended.end();
    assert_eq!(ended.code, Some(124), "the command is ended: {ended:?}");
    assert!(ended.err.contains("lower version"), "{ended:?}");
    assert!(ended.err.contains("the lock is lost: the lease ran out"), "{ended:?}");
    here.run(&["get", "valve"]).is(0, written.text());
}

fn next_candidate_leads_after_the_leader_ends(mode: Mode) {
    let Some(here) = mode.start(&[]) else { return };
    let observer = here.spawn(&["elect", "e"]);
    assert_eq!(observer.line(), "-", "no candidate leads");
    let candidate = |name| here.spawn(&["elect", "e", "--candidate", name, "--lease", LEASE]);
    let one = candidate("one");
    assert_eq!(observer.line(), "one");
    let two = candidate("two");
    assert_eq!(two.line(), "one");
    // The signal of a closed terminal. Other signals have the same effect.
    one.signal("-HUP");
    let ended = one.end();
    assert_eq!(ended.code, Some(0), "{ended:?}");
    assert_eq!((observer.line(), observer.line()), ("-".to_owned(), "two".to_owned()));
    two.kill();
    assert_eq!(observer.line(), "-", "the lease has expired");
    observer.signal("-INT");
    observer.end().is(0, "");
    let json = here.run(&["elect", "e", "--count", "1", "--output", "json"]).json();
    assert_eq!(json["result"], "none");
}
