use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;

use crate::report::NOT_ALLOWED;
use crate::request::By::{self, A, B};
use crate::request::{Dialect, Request, notification_topic, notify_set, request, response_topic};
use crate::trial::{Done, OK, ONE, Stop, Trial, ZERO, in_time};
use crate::wire::{Connection, Connector, Lost};

/// Registers for a key.
async fn watch(trial: &mut Trial, by: By, key: &[u8]) -> Done {
    trial.expect(&request!["KEYNOTIFY", key].by(by), OK).await.map(drop)
}

/// Ends a registration, to free its memory in the store.
async fn unwatch(trial: &mut Trial, by: By, key: &[u8]) -> Done {
    trial.request(&request!["KEYNOTIFY", key, "STOP"].by(by)).await.map(drop)
}

pub(super) async fn set(trial: &mut Trial) -> Done {
    let key = trial.key("k");
    watch(trial, B, &key).await?;
    let long = "value".repeat(200);
    for value in ["v", "v", "", "\r\n$-1\r\n", &long] {
        let version = trial.set(&key, value).await?;
        trial.expect_set_notification(B, &key, value, &version).await?;
    }
    unwatch(trial, B, &key).await
}

pub(super) async fn removed(trial: &mut Trial) -> Done {
    let key = trial.key("k");
    watch(trial, B, &key).await?;
    for removal in [request!["DEL", key], request!["VDEL", key, "v"]] {
        let version = trial.set(&key, "v").await?;
        trial.expect_set_notification(B, &key, "v", &version).await?;
        trial.expect(&removal, ONE).await?;
        trial.expect_delete_notification(B, &key, &version, Dialect::Deployed).await?;
    }
    unwatch(trial, B, &key).await
}

pub(super) async fn expired(trial: &mut Trial) -> Done {
    let key = trial.key("k");
    watch(trial, B, &key).await?;
    trial.expect(&request!["SET", key, "v", "PX", "100"], OK).await?;
    trial.notification(B).await?;
    let got = trial.notification(B).await?;
    trial.is_deletion(&got, Dialect::Deployed);
    trial.expect_no_notification(B).await?;
    unwatch(trial, B, &key).await
}

pub(super) async fn expired_version(trial: &mut Trial) -> Done {
    let key = trial.key("k");
    watch(trial, B, &key).await?;
    let reply = trial.expect(&request!["SET", key, "v", "PX", "100"], OK).await?;
    let version = reply.timestamp().unwrap_or("none").to_owned();
    trial.notification(B).await?;
    let got = trial.notification(B).await?;
    let got = got.property("__ts").unwrap_or("none");
    trial.should(
        got == version,
        format_args!("expected __ts {version}, got {}", got.escape_debug()),
    );
    unwatch(trial, B, &key).await
}

pub(super) async fn dialect(trial: &mut Trial) -> Done {
    for dialect in Dialect::BOTH {
        let key = trial.key(dialect.name());
        trial.expect(&request!["KEYNOTIFY", key].by(B).dialect(dialect), OK).await?;
        let version = trial.set(&key, "v").await?;
        trial.expect_set_notification(B, &key, "v", &version).await?;
        trial.expect(&request!["DEL", key], ONE).await?;
        trial.expect_delete_notification(B, &key, &version, dialect).await?;
        unwatch(trial, B, &key).await?;
    }
    Ok(())
}

pub(super) async fn own(trial: &mut Trial) -> Done {
    let key = trial.key("k");
    watch(trial, A, &key).await?;
    let version = trial.set(&key, "v").await?;
    trial.expect_set_notification(A, &key, "v", &version).await?;
    trial.expect(&request!["DEL", key], ONE).await?;
    trial.expect_delete_notification(A, &key, &version, Dialect::Deployed).await?;
    unwatch(trial, A, &key).await
}

pub(super) async fn absent(trial: &mut Trial) -> Done {
    let key = trial.key("k");
    trial.expect_value(&key, None).await?;
    watch(trial, B, &key).await?;
    let version = trial.set(&key, "v").await?;
    trial.expect_set_notification(B, &key, "v", &version).await?;
    unwatch(trial, B, &key).await
}

pub(super) async fn each(trial: &mut Trial) -> Done {
    let key = trial.key("k");
    watch(trial, B, &key).await?;
    let mut versions = Vec::new();
    for (number, condition) in ["NX", "", "", "", "", "", "", ""].into_iter().enumerate() {
        let value = number.to_string();
        let request = match condition {
            "" => request!["SET", key, value],
            condition => request!["SET", key, value, condition],
        };
        let reply = trial.expect(&request, OK).await?;
        versions.push(reply.timestamp().unwrap_or_default().to_owned());
    }
    let same = trial.expect(&request!["SET", key, "7", "NEX"], OK).await?;
    let same = same.timestamp().unwrap_or_default().to_owned();
    trial.expect(&request!["DEL", key], ONE).await?;
    for (number, version) in versions.iter().enumerate() {
        trial.expect_set_notification(B, &key, &number.to_string(), version).await?;
    }
    trial.expect_set_notification(B, &key, "7", &same).await?;
    trial.expect_delete_notification(B, &key, &same, Dialect::Deployed).await?;
    trial.expect_no_notification(B).await?;
    unwatch(trial, B, &key).await
}

pub(super) async fn no_change(trial: &mut Trial) -> Done {
    let (key, other) = (trial.key("k"), trial.key("other"));
    watch(trial, B, &key).await?;
    trial.expect(&request!["DEL", key], ZERO).await?;
    trial.expect(&request!["VDEL", key, "v"], ZERO).await?;
    trial.request(&request!["SET", key, "v"].untimed()).await?;
    trial.expect_no_notification(B).await?;
    let version = trial.set(&key, "v").await?;
    trial.expect_set_notification(B, &key, "v", &version).await?;
    trial.not_applied(&request!["SET", key, "w", "NX"]).await?;
    trial.not_applied(&request!["SET", key, "w", "NEX"]).await?;
    trial.not_applied(&request!["VDEL", key, "w"]).await?;
    trial.expect_value(&key, Some("v")).await?;
    let fenced = request!["SET", key, "v"].token("10:0:verify");
    let reply = trial.expect(&fenced, OK).await?;
    trial.expect_set_notification(B, &key, "v", reply.timestamp().unwrap_or_default()).await?;
    for refused in [request!["SET", key, "w"], request!["DEL", key].token("9:0:verify")] {
        let got = trial.request(&refused).await?;
        trial.must(got.error().is_some(), "expected that the fence refuses it");
    }
    trial.set(&other, "v").await?;
    trial.expect_no_notification(B).await?;
    unwatch(trial, B, &key).await
}

pub(super) async fn again(trial: &mut Trial) -> Done {
    let key = trial.key("k");
    for _ in 0..3 {
        watch(trial, B, &key).await?;
    }
    let version = trial.set(&key, "v").await?;
    trial.expect_set_notification(B, &key, "v", &version).await?;
    trial.expect_no_notification(B).await?;
    trial.expect(&request!["KEYNOTIFY", key, "STOP"].by(B), OK).await?;
    trial.set(&key, "w").await?;
    trial.expect_no_notification(B).await
}

pub(super) async fn stop(trial: &mut Trial) -> Done {
    let key = trial.key("k");
    let stop = request!["KEYNOTIFY", key, "STOP"].by(B);
    trial.expect(&stop, ZERO).await?;
    watch(trial, B, &key).await?;
    trial.expect(&stop, OK).await?;
    trial.expect(&stop, ZERO).await?;
    trial.set(&key, "v").await?;
    trial.expect_no_notification(B).await
}

pub(super) async fn before_stop(trial: &mut Trial) -> Done {
    let key = trial.key("k");
    watch(trial, B, &key).await?;
    let mut sent = Vec::new();
    for value in ["1", "2"] {
        sent.push(trial.send(&request!["SET", key, value].by(B)).await?);
    }
    trial.expect(&request!["KEYNOTIFY", key, "STOP"].by(B), OK).await?;
    // Both notifications have already arrived.
    for value in ["1", "2"] {
        let got = trial.take_notification(B);
        let expected = notify_set(value.as_bytes());
        let got = got.map(|message| message.payload.to_vec());
        trial.must(
            got.as_deref() == Some(&*expected),
            format_args!("expected the notification of {value} before the reply to the STOP"),
        );
    }
    for set in &sent {
        trial.reply_to(B, set).await?;
    }
    trial.expect_no_notification(B).await
}

pub(super) async fn by_client(trial: &mut Trial) -> Done {
    let (key, other) = (trial.key("k"), trial.key("K"));
    watch(trial, A, &key).await?;
    watch(trial, B, &key).await?;
    watch(trial, A, &other).await?;
    let version = trial.set(&key, "v").await?;
    trial.expect_set_notification(A, &key, "v", &version).await?;
    trial.expect_set_notification(B, &key, "v", &version).await?;
    trial.expect_no_notification(A).await?;
    trial.expect(&request!["KEYNOTIFY", key, "STOP"].by(A), OK).await?;
    let version = trial.set(&key, "w").await?;
    trial.expect_set_notification(B, &key, "w", &version).await?;
    trial.expect_no_notification(A).await?;
    unwatch(trial, B, &key).await?;
    unwatch(trial, A, &other).await
}

pub(super) async fn literal(trial: &mut Trial) -> Done {
    let (key, star, all) = (trial.key("k"), trial.key("*"), trial.key("?"));
    watch(trial, B, &star).await?;
    watch(trial, B, &all).await?;
    trial.set(&key, "v").await?;
    trial.expect_no_notification(B).await?;
    let version = trial.set(&star, "v").await?;
    trial.expect_set_notification(B, &star, "v", &version).await?;
    unwatch(trial, B, &star).await?;
    unwatch(trial, B, &all).await
}

pub(super) async fn binary(trial: &mut Trial) -> Done {
    let key = trial.key([0, 0xff, b'\r', b'\n', b'+', b'#', b'/']);
    watch(trial, B, &key).await?;
    let version = trial.set(&key, "v").await?;
    trial.expect_set_notification(B, &key, "v", &version).await?;
    unwatch(trial, B, &key).await
}

pub(super) async fn ends(trial: &mut Trial) -> Done {
    let key = trial.key("k");
    watch(trial, B, &key).await?;
    trial.disconnect(B).await?;
    trial.expect_no_notification(B).await?;
    // A store outside the broker may learn of the disconnect late or never.
    trial.set(&key, "v").await?;
    let got = trial.request(&request!["KEYNOTIFY", key, "STOP"].by(B)).await?;
    let ended = got.0.payload == ZERO && trial.take_notification(B).is_none();
    trial.should(
        ended,
        "expected the end of the registration, which a store outside the broker may miss",
    );
    Ok(())
}

/// A client that subscribes to its replies, but not to notifications.
struct Unsubscribed {
    id: String,
    connection: Box<dyn Connection>,
    within: Duration,
}

impl Unsubscribed {
    async fn connect(
        (connector, id): (Arc<dyn Connector>, String),
        within: Duration,
    ) -> Result<Self, Stop> {
        let mut connection = in_time(within, connector.connect(&id)).await?;
        in_time(within, connection.subscribe(&response_topic(&id))).await?;
        Ok(Self { id, connection, within })
    }

    /// Sends a request and returns the payload of its reply. Ignores notifications.
    async fn request(&mut self, trial: &mut Trial, request: &Request) -> Result<Bytes, Stop> {
        let message = trial.message_of(request, &self.id);
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
            Err(_) => return Err(Stop::Missing("no reply in time".into())),
        };
        Ok(reply?)
    }

    async fn register(&mut self, trial: &mut Trial, key: &[u8]) -> Done {
        let reply = self.request(trial, &request!["KEYNOTIFY", key]).await?;
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
    let mut client = Unsubscribed::connect(trial.extra_client("direct"), trial.timeout).await?;
    client.register(trial, &key).await?;
    trial.set(&key, "v").await?;
    let got = tokio::time::timeout(trial.patience(), client.connection.next()).await;
    let expected = notification_topic(&client.id, Some(&key));
    let got = matches!(&got, Ok(Ok(message)) if message.topic == expected);
    trial.should(
        got,
        "expected a notification without a subscription, which only a store in the broker can send",
    );
    client.request(trial, &request!["KEYNOTIFY", key, "STOP"]).await?;
    in_time(client.within, client.connection.disconnect()).await
}

/// A deployed client sends this STOP before each attempt to get a lock, and fails at any other
/// reply.
pub(super) async fn unsubscribed(trial: &mut Trial) -> Done {
    let key = trial.key("k");
    let mut client =
        Unsubscribed::connect(trial.extra_client("unsubscribed"), trial.timeout).await?;
    let stop = request!["KEYNOTIFY", key, "STOP"];
    for changes in [1, 3] {
        client.register(trial, &key).await?;
        for value in 0..changes {
            trial.set(&key, &value.to_string()).await?;
        }
        for expected in [OK, ZERO] {
            let reply = client.request(trial, &stop).await?;
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
