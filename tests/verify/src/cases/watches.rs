use crate::ask::By::{self, A, B};
use crate::ask::{Dialect, ask, notification_topic, notify_set, response_topic};
use crate::report::NOT_ALLOWED;
use crate::trial::{Done, OK, ONE, Stop, Trial, ZERO, in_time};

/// Registers.
async fn watch(trial: &mut Trial, by: By, key: &[u8]) -> Done {
    trial.expect(&ask!["KEYNOTIFY", key].by(by), OK).await.map(drop)
}

/// Ends a registration, so that it costs the store nothing any more.
async fn unwatch(trial: &mut Trial, by: By, key: &[u8]) -> Done {
    trial.ask(&ask!["KEYNOTIFY", key, "STOP"].by(by)).await.map(drop)
}

pub(super) async fn set(trial: &mut Trial) -> Done {
    let key = trial.key("k");
    watch(trial, B, &key).await?;
    let long = "value".repeat(200);
    for value in ["v", "v", "", "\r\n$-1\r\n", &long] {
        let version = trial.set(&key, value).await?;
        trial.told_set(B, &key, value, &version).await?;
    }
    unwatch(trial, B, &key).await
}

pub(super) async fn removed(trial: &mut Trial) -> Done {
    let key = trial.key("k");
    watch(trial, B, &key).await?;
    for removal in [ask!["DEL", key], ask!["VDEL", key, "v"]] {
        let version = trial.set(&key, "v").await?;
        trial.told_set(B, &key, "v", &version).await?;
        trial.expect(&removal, ONE).await?;
        trial.told_deleted(B, &key, &version, Dialect::Deployed).await?;
    }
    unwatch(trial, B, &key).await
}

pub(super) async fn expired(trial: &mut Trial) -> Done {
    let key = trial.key("k");
    watch(trial, B, &key).await?;
    trial.expect(&ask!["SET", key, "v", "PX", "100"], OK).await?;
    trial.notification(B).await?;
    let told = trial.notification(B).await?;
    trial.is_deletion(&told, Dialect::Deployed);
    trial.quiet(B).await?;
    unwatch(trial, B, &key).await
}

pub(super) async fn expired_version(trial: &mut Trial) -> Done {
    let key = trial.key("k");
    watch(trial, B, &key).await?;
    let reply = trial.expect(&ask!["SET", key, "v", "PX", "100"], OK).await?;
    let version = reply.timestamp().unwrap_or("none").to_owned();
    trial.notification(B).await?;
    let told = trial.notification(B).await?;
    let told = told.property("__ts").unwrap_or("none");
    trial
        .may(told == version, format_args!("expected __ts {version}, got {}", told.escape_debug()));
    unwatch(trial, B, &key).await
}

pub(super) async fn dialect(trial: &mut Trial) -> Done {
    for dialect in Dialect::BOTH {
        let key = trial.key(dialect.name());
        trial.expect(&ask!["KEYNOTIFY", key].by(B).dialect(dialect), OK).await?;
        let version = trial.set(&key, "v").await?;
        trial.told_set(B, &key, "v", &version).await?;
        trial.expect(&ask!["DEL", key], ONE).await?;
        trial.told_deleted(B, &key, &version, dialect).await?;
        unwatch(trial, B, &key).await?;
    }
    Ok(())
}

pub(super) async fn own(trial: &mut Trial) -> Done {
    let key = trial.key("k");
    watch(trial, A, &key).await?;
    let version = trial.set(&key, "v").await?;
    trial.told_set(A, &key, "v", &version).await?;
    trial.expect(&ask!["DEL", key], ONE).await?;
    trial.told_deleted(A, &key, &version, Dialect::Deployed).await?;
    unwatch(trial, A, &key).await
}

pub(super) async fn absent(trial: &mut Trial) -> Done {
    let key = trial.key("k");
    trial.has(&key, None).await?;
    watch(trial, B, &key).await?;
    let version = trial.set(&key, "v").await?;
    trial.told_set(B, &key, "v", &version).await?;
    unwatch(trial, B, &key).await
}

pub(super) async fn each(trial: &mut Trial) -> Done {
    let key = trial.key("k");
    watch(trial, B, &key).await?;
    let mut versions = Vec::new();
    for (number, condition) in ["NX", "", "", "", "", "", "", ""].into_iter().enumerate() {
        let value = number.to_string();
        let ask = match condition {
            "" => ask!["SET", key, value],
            condition => ask!["SET", key, value, condition],
        };
        let reply = trial.expect(&ask, OK).await?;
        versions.push(reply.timestamp().unwrap_or_default().to_owned());
    }
    let same = trial.expect(&ask!["SET", key, "7", "NEX"], OK).await?;
    let same = same.timestamp().unwrap_or_default().to_owned();
    trial.expect(&ask!["DEL", key], ONE).await?;
    for (number, version) in versions.iter().enumerate() {
        trial.told_set(B, &key, &number.to_string(), version).await?;
    }
    trial.told_set(B, &key, "7", &same).await?;
    trial.told_deleted(B, &key, &same, Dialect::Deployed).await?;
    trial.quiet(B).await?;
    unwatch(trial, B, &key).await
}

pub(super) async fn no_change(trial: &mut Trial) -> Done {
    let (key, other) = (trial.key("k"), trial.key("other"));
    watch(trial, B, &key).await?;
    trial.expect(&ask!["DEL", key], ZERO).await?;
    trial.expect(&ask!["VDEL", key, "v"], ZERO).await?;
    trial.ask(&ask!["SET", key, "v"].untimed()).await?;
    trial.quiet(B).await?;
    let version = trial.set(&key, "v").await?;
    trial.told_set(B, &key, "v", &version).await?;
    trial.not_applied(&ask!["SET", key, "w", "NX"]).await?;
    trial.not_applied(&ask!["SET", key, "w", "NEX"]).await?;
    trial.not_applied(&ask!["VDEL", key, "w"]).await?;
    trial.has(&key, Some("v")).await?;
    let fenced = ask!["SET", key, "v"].token("10:0:verify");
    let reply = trial.expect(&fenced, OK).await?;
    trial.told_set(B, &key, "v", reply.timestamp().unwrap_or_default()).await?;
    for refused in [ask!["SET", key, "w"], ask!["DEL", key].token("9:0:verify")] {
        let told = trial.ask(&refused).await?;
        trial.must(told.error().is_some(), "expected that the fence refuses it");
    }
    trial.set(&other, "v").await?;
    trial.quiet(B).await?;
    unwatch(trial, B, &key).await
}

pub(super) async fn again(trial: &mut Trial) -> Done {
    let key = trial.key("k");
    for _ in 0..3 {
        watch(trial, B, &key).await?;
    }
    let version = trial.set(&key, "v").await?;
    trial.told_set(B, &key, "v", &version).await?;
    trial.quiet(B).await?;
    trial.expect(&ask!["KEYNOTIFY", key, "STOP"].by(B), OK).await?;
    trial.set(&key, "w").await?;
    trial.quiet(B).await
}

pub(super) async fn stop(trial: &mut Trial) -> Done {
    let key = trial.key("k");
    let stop = ask!["KEYNOTIFY", key, "STOP"].by(B);
    trial.expect(&stop, ZERO).await?;
    watch(trial, B, &key).await?;
    trial.expect(&stop, OK).await?;
    trial.expect(&stop, ZERO).await?;
    trial.set(&key, "v").await?;
    trial.quiet(B).await
}

pub(super) async fn before_stop(trial: &mut Trial) -> Done {
    let key = trial.key("k");
    watch(trial, B, &key).await?;
    let mut sent = Vec::new();
    for value in ["1", "2"] {
        sent.push(trial.send(&ask!["SET", key, value].by(B)).await?);
    }
    trial.expect(&ask!["KEYNOTIFY", key, "STOP"].by(B), OK).await?;
    // Both are here already.
    for value in ["1", "2"] {
        let told = trial.heard(B);
        let expected = notify_set(value.as_bytes());
        let told = told.map(|message| message.payload.to_vec());
        trial.must(
            told.as_deref() == Some(&*expected),
            format_args!("expected the notification of {value} before the reply to the STOP"),
        );
    }
    for set in &sent {
        trial.reply_to(B, set).await?;
    }
    trial.quiet(B).await
}

pub(super) async fn by_client(trial: &mut Trial) -> Done {
    let (key, other) = (trial.key("k"), trial.key("K"));
    watch(trial, A, &key).await?;
    watch(trial, B, &key).await?;
    watch(trial, A, &other).await?;
    let version = trial.set(&key, "v").await?;
    trial.told_set(A, &key, "v", &version).await?;
    trial.told_set(B, &key, "v", &version).await?;
    trial.quiet(A).await?;
    trial.expect(&ask!["KEYNOTIFY", key, "STOP"].by(A), OK).await?;
    let version = trial.set(&key, "w").await?;
    trial.told_set(B, &key, "w", &version).await?;
    trial.quiet(A).await?;
    unwatch(trial, B, &key).await?;
    unwatch(trial, A, &other).await
}

pub(super) async fn literal(trial: &mut Trial) -> Done {
    let (key, star, all) = (trial.key("k"), trial.key("*"), trial.key("?"));
    watch(trial, B, &star).await?;
    watch(trial, B, &all).await?;
    trial.set(&key, "v").await?;
    trial.quiet(B).await?;
    let version = trial.set(&star, "v").await?;
    trial.told_set(B, &star, "v", &version).await?;
    unwatch(trial, B, &star).await?;
    unwatch(trial, B, &all).await
}

pub(super) async fn binary(trial: &mut Trial) -> Done {
    let key = trial.key([0, 0xff, b'\r', b'\n', b'+', b'#', b'/']);
    watch(trial, B, &key).await?;
    let version = trial.set(&key, "v").await?;
    trial.told_set(B, &key, "v", &version).await?;
    unwatch(trial, B, &key).await
}

pub(super) async fn ends(trial: &mut Trial) -> Done {
    let key = trial.key("k");
    watch(trial, B, &key).await?;
    trial.disconnect(B).await?;
    trial.quiet(B).await?;
    // A store that is no part of its broker learns of it late or never.
    trial.set(&key, "v").await?;
    let told = trial.ask(&ask!["KEYNOTIFY", key, "STOP"].by(B)).await?;
    let ended = told.0.payload == ZERO && trial.heard(B).is_none();
    trial.may(ended, "expected that the registration has ended, which a store that is no part of its broker may not know");
    Ok(())
}

pub(super) async fn direct(trial: &mut Trial) -> Done {
    let key = trial.key("k");
    let (place, id) = trial.stranger("direct");
    let within = trial.timeout;
    let mut connection = in_time(within, place.connect(&id)).await?;
    in_time(within, connection.subscribe(&response_topic(&id))).await?;
    let message = trial.message_of(&ask!["KEYNOTIFY", key], &id);
    in_time(within, connection.publish(&message)).await?;
    let reply = tokio::time::timeout(within, connection.next()).await;
    if matches!(&reply, Ok(Ok(reply)) if reply.payload.ends_with(b"not authorized\r\n")) {
        return Err(Stop::Skipped(NOT_ALLOWED));
    }
    let registered = matches!(&reply, Ok(Ok(reply)) if reply.payload == OK);
    if !registered {
        return Err(Stop::Missing(
            "a client without a subscription for notifications cannot register".into(),
        ));
    }
    trial.set(&key, "v").await?;
    let told = tokio::time::timeout(trial.patience(), connection.next()).await;
    let expected = notification_topic(&id, Some(&key));
    let told = matches!(&told, Ok(Ok(message)) if message.topic == expected);
    trial.may(told, "expected the notification without a subscription, which only a store that is part of its broker can do");
    let end = trial.message_of(&ask!["KEYNOTIFY", key, "STOP"], &id);
    in_time(within, connection.publish(&end)).await?;
    in_time(within, connection.disconnect()).await
}
