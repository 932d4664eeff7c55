//! Commands under a lock, and elections.

use std::process::{Command, Stdio};

use crate::place::{Form, Place, everywhere};
use crate::process::Running;

everywhere!(
    a_command_runs_under_a_lock,
    a_lock_that_is_not_free_in_time_runs_nothing,
    a_command_ends_when_its_lock_is_lost,
    a_store_that_starts_again_is_told_of_as_such,
    what_a_command_has_started_ends_with_it,
    a_command_has_the_terminal,
    signals_go_to_the_command,
    a_holder_that_is_killed_is_followed,
    a_holder_that_was_stopped_is_fenced,
    one_leads_and_the_next_follows,
);

/// `statestore lock l` with these options and a script for the shell, which finds the command in `$BIN`.
fn locked(here: &Place, options: &[&str], script: &str) -> Command {
    let mut command = here.command(&["lock", "l"]);
    command.args(options).args(["--", "sh", "-c", script]);
    command.env("BIN", env!("CARGO_BIN_EXE_statestore"));
    command
}

/// The same as a running process.
fn holder(here: &Place, options: &[&str], script: &str) -> Running {
    Running::start(locked(here, options, script).stdin(Stdio::piped()))
}

fn a_command_runs_under_a_lock(form: Form) {
    let Some(here) = form.start(&[]) else { return };
    let script = "echo $STATESTORE_FENCING_TOKEN; exit 7";
    let first = holder(&here, &[], script).end();
    assert_eq!(first.code, Some(7), "the command's own: {first:?}");
    let second = holder(&here, &[], script).end();
    assert_eq!(first.text().trim().split(':').count(), 3, "a version: {first:?}");
    assert!(first.text() < second.text(), "greater for each holder: {first:?} {second:?}");
    here.run(&["get", "l"]).is(1, "");
    here.run(&["lock", "l", "--", "/there/is/no/such/command"]).fails(2, &["such/command"]);
    here.run(&["get", "l"]).is(1, "");
    let told = holder(&here, &[], "kill -9 $$").end();
    assert_eq!(told.code, Some(137), "as a shell has it");
}

fn a_lock_that_is_not_free_in_time_runs_nothing(form: Form) {
    let Some(here) = form.start(&[]) else { return };
    let mut first = holder(&here, &[], "echo held; read line; echo done");
    assert_eq!(first.line(), "held");
    let late = holder(&here, &["--wait", "200ms"], "echo never").end();
    late.fails(1, &["waiting for statestore-cli-", "--wait"]);
    first.say("go on");
    assert_eq!((first.line(), first.end().code), ("done".to_owned(), Some(0)));
    holder(&here, &["--wait", "5s"], "echo free").end().is(0, "free\n");
}

fn a_command_ends_when_its_lock_is_lost(form: Form) {
    let Some(here) = form.start(&[]) else { return };
    // One that goes when it is asked to, and one that does not.
    for (script, told) in [
        ("trap 'echo told; exit 3' TERM; echo held; while :; do sleep 0.02; done", "told\n"),
        ("trap '' TERM; echo held; while :; do sleep 0.02; done", ""),
    ] {
        let command = holder(&here, &["--lease", "600ms"], script);
        assert_eq!(command.line(), "held");
        here.run(&["set", "l", "somebody else"]).version();
        let ended = command.end();
        assert_eq!((ended.code, ended.text()), (Some(124), told), "{ended:?}");
        assert!(ended.err.contains("the lock is lost: another holder has it"), "{ended:?}");
        here.run(&["get", "l"]).is(0, "somebody else");
        here.run(&["del", "l"]).is(0, "");
    }
}

fn a_store_that_starts_again_is_told_of_as_such(form: Form) {
    let Some(mut here) = form.start(&[]) else { return };
    let command = holder(&here, &["--lease", "3s"], "echo held; while :; do sleep 0.02; done");
    assert_eq!(command.line(), "held");
    here.kill_store();
    here.start_store();
    let ended = command.end();
    ended.fails(124, &["the lock is lost: the store restarted, or another store replaced it"]);
}

fn what_a_command_has_started_ends_with_it(form: Form) {
    let Some(here) = form.start(&[]) else { return };
    // One that goes when it is asked to, and one that does not and outlives what started it.
    for trap in ["", "trap '' TERM; "] {
        let child = format!("{trap}while :; do sleep 0.02; done");
        let script = format!("sh -c \"{child}\" & trap 'exit 3' TERM; echo held; wait");
        let command = holder(&here, &["--lease", "600ms"], &script);
        assert_eq!(command.line(), "held");
        here.run(&["set", "l", "somebody else"]).version();
        // Its output ends when nobody is left who could write to it.
        let ended = command.end();
        assert_eq!(ended.code, Some(124), "{ended:?}");
        here.run(&["del", "l"]).is(0, "");
    }
}

fn a_command_has_the_terminal(form: Form) {
    let Some(here) = form.start(&[]) else { return };
    if Command::new("script").arg("--version").output().is_err() {
        return form.skip("there is no command `script` for a terminal");
    }
    let script = "trap : INT; $BIN lock l -- sh -c 'echo asks; read line; echo heard $line'; \
                  $BIN lock l -- sh -c 'echo sleeps; exec sleep 100'; echo ended $?; read line; echo and $line";
    let mut terminal = Command::new("script");
    terminal.args(["-qec", "bash -c \"$SCRIPT\"", "/dev/null"]).env("SCRIPT", script);
    terminal.env("BIN", env!("CARGO_BIN_EXE_statestore"));
    let is_set = here.command(&[]);
    let is_set = is_set.get_envs().filter_map(|(name, value)| Some((name, value?)));
    let mut terminal = Running::start(terminal.envs(is_set).stdin(Stdio::piped()));
    let heard = |terminal: &Running, word: &str| while !terminal.line().contains(word) {};
    heard(&terminal, "asks");
    terminal.say("me");
    heard(&terminal, "heard me");
    heard(&terminal, "sleeps");
    terminal.say("\x03");
    heard(&terminal, "ended 130");
    heard(&terminal, "and");
    here.run(&["get", "l"]).is(1, "");
}

fn signals_go_to_the_command(form: Form) {
    let Some(here) = form.start(&[]) else { return };
    for (signal, code) in [("-TERM", 4), ("-INT", 5), ("-HUP", 6), ("-QUIT", 7)] {
        let script = "trap 'exit 4' TERM; trap 'exit 5' INT; trap 'exit 6' HUP; trap 'exit 7' QUIT; \
                      echo held; while :; do sleep 0.02; done";
        let command = holder(&here, &[], script);
        assert_eq!(command.line(), "held");
        command.signal(signal);
        assert_eq!(command.end().code, Some(code), "{signal}");
        here.run(&["get", "l"]).is(1, "");
    }
}

fn a_holder_that_is_killed_is_followed(form: Form) {
    let Some(here) = form.start(&[]) else { return };
    let first = holder(&here, &["--lease", "1s"], "echo held; exec sleep 3");
    assert_eq!(first.line(), "held");
    first.kill();
    // A second more than the lease.
    let next = holder(&here, &["--lease", "1s", "--wait", "2s"], "echo mine").end();
    assert_eq!((next.code, next.text()), (Some(0), "mine\n"), "{next:?}");
}

fn a_holder_that_was_stopped_is_fenced(form: Form) {
    let Some(here) = form.start(&[]) else { return };
    let write =
        "$BIN set valve $STATESTORE_FENCING_TOKEN --fencing-token $STATESTORE_FENCING_TOKEN";
    let script = format!("echo held; read line; {write} >&2; echo $?; exec sleep 20");
    let mut zombie = holder(&here, &["--lease", "600ms"], &script);
    assert_eq!(zombie.line(), "held");
    zombie.signal("-STOP");
    let next = holder(&here, &["--lease", "5s"], write).end();
    assert_eq!(next.code, Some(0), "{next:?}");
    let written = here.run(&["get", "valve"]);
    zombie.say("write");
    assert_eq!(zombie.line(), "2", "its write is refused");
    zombie.signal("-CONT");
    let ended = zombie.end();
    assert_eq!(ended.code, Some(124), "its command is ended: {ended:?}");
    assert!(ended.err.contains("lower version"), "{ended:?}");
    assert!(ended.err.contains("the lock is lost: the lease ran out"), "{ended:?}");
    here.run(&["get", "valve"]).is(0, written.text());
}

fn one_leads_and_the_next_follows(form: Form) {
    let Some(here) = form.start(&[]) else { return };
    let seen = here.spawn(&["elect", "e"]);
    assert_eq!(seen.line(), "-", "nobody leads");
    let candidate = |name| here.spawn(&["elect", "e", "--candidate", name, "--lease", "1s"]);
    let one = candidate("one");
    assert_eq!(seen.line(), "one");
    let two = candidate("two");
    assert_eq!(two.line(), "one");
    // As when its terminal goes; the other signals are the same to it.
    one.signal("-HUP");
    let ended = one.end();
    assert_eq!(ended.code, Some(0), "{ended:?}");
    assert_eq!((seen.line(), seen.line()), ("-".to_owned(), "two".to_owned()));
    two.kill();
    assert_eq!(seen.line(), "-", "its lease is over");
    seen.signal("-INT");
    seen.end().is(0, "");
    let json = here.run(&["elect", "e", "--count", "1", "--output", "json"]).json();
    assert_eq!(json["result"], "none");
}
