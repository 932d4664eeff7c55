use crate::request::{By, request};
use crate::trial::{ABSENT, Done, OK, ONE, Reply, Trial, ZERO};
use crate::version::Stamp;

/// Largest counter that all deployed clients can parse.
const COUNTER_MAX: u64 = (1 << 31) - 1;

/// Returns the version of a reply, and reports a missing one.
fn version(trial: &mut Trial, reply: &Reply) -> Option<Stamp> {
    let version = reply.version();
    let got = reply.timestamp().unwrap_or("none").escape_debug().to_string();
    trial.must(version.is_some(), format_args!("expected a version as __ts, got {got}"));
    version
}

pub(super) async fn of_set(trial: &mut Trial) -> Done {
    let key = trial.key("k");
    for request in [
        request!["SET", key, "v"],
        request!["SET", key, "v", "NEX"],
        request!["SET", key, "w", "PX", "60000"],
    ] {
        let reply = trial.expect(&request, OK).await?;
        let now = trial.unix_ms();
        let Some(version) = version(trial, &reply) else { continue };
        trial.must(
            version.counter <= COUNTER_MAX,
            format_args!("expected a counter of 31 bits, got {}", version.counter),
        );
        trial.must(
            version.wall > 1_000_000_000_000,
            format_args!("expected milliseconds since 1970, got {}", version.wall),
        );
        trial.should(
            version.wall.abs_diff(now) <= 120_000,
            format_args!("expected the time of day, {now}, got {}", version.wall),
        );
    }
    Ok(())
}

pub(super) async fn form(trial: &mut Trial) -> Done {
    let key = trial.key("k");
    let got = trial.set(&key, "v").await?;
    let bare = Stamp::parse(&got).map(|version| version.bare());
    trial.should(bare.as_ref() == Some(&got), format_args!("expected no padding, got {got}"));
    Ok(())
}

pub(super) async fn grows(trial: &mut Trial) -> Done {
    let keys = [trial.key("a"), trial.key("b")];
    let mut last: Option<Stamp> = None;
    for number in 0..12 {
        let by = if number % 3 == 0 { By::B } else { By::A };
        // The clocks of some requests are ahead, and of others behind.
        let stamp = trial.stamp([0, -3_600_000, 1_000, 0][number % 4]);
        let request = request!["SET", keys[number % 2], "v"].by(by).at(stamp);
        if number == 6 {
            // A removal does not reset the versions.
            trial.expect(&request!["DEL", keys[0]], ONE).await?;
        }
        let reply = trial.expect(&request, OK).await?;
        let Some(version) = version(trial, &reply) else { continue };
        if let Some(last) = &last {
            trial.must(
                version > *last,
                format_args!("expected a version after {}, got {}", last.bare(), version.bare()),
            );
            trial.should(
                version.node == last.node,
                format_args!("expected one node id, got {} after {}", version.node, last.node),
            );
        }
        last = Some(version);
    }
    Ok(())
}

pub(super) async fn past_request(trial: &mut Trial) -> Done {
    let key = trial.key("k");
    for ahead in [0, 2_000, -20_000] {
        let asked = trial.stamp(ahead);
        let reply = trial.expect(&request!["SET", key, "v"].at(asked.clone()), OK).await?;
        let version = version(trial, &reply);
        let bare = version.as_ref().map(Stamp::bare).unwrap_or_default();
        trial.must(
            version.is_none_or(|version| Some(version) > Stamp::parse(&asked)),
            format_args!("expected a version after {asked}, got {bare}"),
        );
    }
    Ok(())
}

pub(super) async fn past_token(trial: &mut Trial) -> Done {
    let key = trial.key("k");
    let token = trial.stamp(3_000);
    let reply = trial.expect(&request!["SET", key, "v"].token(token.clone()), OK).await?;
    let version = version(trial, &reply);
    trial.must(
        version.is_none_or(|version| Some(version) >= Stamp::parse(&token)),
        format_args!("expected a version that is not before the token {token}"),
    );
    Ok(())
}

/// Checks that the `__ts` of a reply is the version of an earlier SET.
fn is_version(trial: &mut Trial, reply: &Reply, version: &str) {
    let got = reply.timestamp().unwrap_or("none");
    let same = Stamp::parse(got).is_some() && Stamp::parse(got) == Stamp::parse(version);
    let text = format!("expected __ts {version}, got {}", got.escape_debug());
    trial.must(same, text);
}

pub(super) async fn of_replies(trial: &mut Trial) -> Done {
    let key = trial.key("k");
    trial.set(&key, "v").await?;
    let stored = trial.set(&key, "v").await?;
    for by in [By::A, By::B] {
        let reply = trial.expect(&request!["GET", key].by(by), "$1\r\nv\r\n").await?;
        is_version(trial, &reply, &stored);
        let reply = trial.not_applied(&request!["SET", key, "w", "NX"].by(by)).await?;
        is_version(trial, &reply, &stored);
    }
    let reply = trial.expect(&request!["DEL", key], ONE).await?;
    is_version(trial, &reply, &stored);
    let stored = trial.set(&key, "v").await?;
    let reply = trial.expect(&request!["VDEL", key, "v"], ONE).await?;
    is_version(trial, &reply, &stored);
    Ok(())
}

pub(super) async fn of_vdel(trial: &mut Trial) -> Done {
    let key = trial.key("k");
    let stored = trial.set(&key, "v").await?;
    let reply = trial.not_applied(&request!["VDEL", key, "w"]).await?;
    let got = reply.timestamp().unwrap_or("none").to_owned();
    trial.should(got == stored, format_args!("expected __ts {stored}, got {}", got.escape_debug()));
    Ok(())
}

pub(super) async fn none(trial: &mut Trial) -> Done {
    let key = trial.key("k");
    for (request, payload) in [
        (request!["GET", key], ABSENT),
        (request!["DEL", key], ZERO),
        (request!["VDEL", key, "v"], ZERO),
        (request!["KEYNOTIFY", key], OK),
        (request!["KEYNOTIFY", key, "STOP"], OK),
        (request!["KEYNOTIFY", key, "STOP"], ZERO),
        (request!["GET", key, "v"], b"-ERR wrong number of arguments\r\n"),
    ] {
        let reply = trial.expect(&request, payload).await?;
        let got = reply.timestamp().unwrap_or_default().to_owned();
        trial.should(got.is_empty(), format_args!("expected no __ts, got {got}"));
    }
    Ok(())
}
