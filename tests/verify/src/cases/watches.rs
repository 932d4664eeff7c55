use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;

use crate::ask::By::{self, A, B};
use crate::ask::{Ask, Dialect, ask, notification_topic, notify_set, response_topic};
use crate::report::NOT_ALLOWED;
use crate::trial::{Done, OK, ONE, Stop, Trial, ZERO, in_time};
use crate::wire::{Connection, Lost, Place};

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

/// A client that subscribes to its replies, but not to notifications.
struct Deaf {
    id: String,
    connection: Box<dyn Connection>,
    within: Duration,
}

impl Deaf {
    async fn connect(
        (place, id): (Arc<dyn Place>, String),
        within: Duration,
    ) -> Result<Self, Stop> {
        let mut connection = in_time(within, place.connect(&id)).await?;
        in_time(within, connection.subscribe(&response_topic(&id))).await?;
        Ok(Self { id, connection, within })
    }

    /// Sends a request and returns the payload of its reply. Notifications are ignored.
    async fn ask(&mut self, trial: &mut Trial, ask: &Ask) -> Result<Bytes, Stop> {
        let message = trial.message_of(ask, &self.id);
        in_time(self.within, self.connection.publish(&message)).await?;
        let reply = async {
            loop {
                let reply = self.connection.next().await?;
                if reply.correlation_data == message.correlation_data {
                    return Ok(reply.payload);
                }
            }
        };
        let reply: Result<Bytes, Lost> = match tokio::time::timeout(self.within, reply).await {
            Ok(reply) => reply,
            Err(_) => return Err(Stop::Missing("no answer in time".into())),
        };
        Ok(reply?)
    }

    async fn register(&mut self, trial: &mut Trial, key: &[u8]) -> Done {
        let reply = self.ask(trial, &ask!["KEYNOTIFY", key]).await?;
        if reply.ends_with(b"not authorized\r\n") {
            return Err(Stop::Skipped(NOT_ALLOWED));
        }
        match reply == OK {
            true => Ok(()),
            false => Err(Stop::Missing(
                "a client without a subscription for notifications cannot register".into(),
            )),
        }
    }
}

pub(super) async fn direct(trial: &mut Trial) -> Done {
    let key = trial.key("k");
    let mut client = Deaf::connect(trial.stranger("direct"), trial.timeout).await?;
    client.register(trial, &key).await?;
    trial.set(&key, "v").await?;
    let told = tokio::time::timeout(trial.patience(), client.connection.next()).await;
    let expected = notification_topic(&client.id, Some(&key));
    let told = matches!(&told, Ok(Ok(message)) if message.topic == expected);
    trial.may(told, "expected the notification without a subscription, which only a store that is part of its broker can do");
    client.ask(trial, &ask!["KEYNOTIFY", key, "STOP"]).await?;
    in_time(client.within, client.connection.disconnect()).await
}

/// A deployed client does so at each attempt to get a lock, and fails at any other reply.
pub(super) async fn unheard(trial: &mut Trial) -> Done {
    let key = trial.key("k");
    let mut client = Deaf::connect(trial.stranger("unheard"), trial.timeout).await?;
    let stop = ask!["KEYNOTIFY", key, "STOP"];
    for changes in [1, 3] {
        client.register(trial, &key).await?;
        for value in 0..changes {
            trial.set(&key, &value.to_string()).await?;
        }
        for expected in [OK, ZERO] {
            let reply = client.ask(trial, &stop).await?;
            trial.must(
                reply == expected,
                format_args!(
                    "expected {} for a STOP after {changes} changes, got {}",
                    expected.escape_ascii(),
                    reply.escape_ascii()
                ),
            );
        }
    }
    in_time(client.within, client.connection.disconnect()).await
}
