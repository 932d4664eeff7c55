use std::time::Duration;

use tokio::time::{Instant, sleep};

use crate::request::{Request, request};
use crate::trial::{Done, OK, Stop, Trial, ZERO};

/// A value with an expiry, with the time at which it was set.
struct Passing {
    since: Instant,
    px: Duration,
}

impl Passing {
    /// Sets the value.
    async fn set(trial: &mut Trial, key: &[u8]) -> Result<Self, Stop> {
        Self::set_with(trial, key, None).await
    }

    /// Sets the value with a condition.
    async fn set_with(
        trial: &mut Trial,
        key: &[u8],
        condition: Option<&str>,
    ) -> Result<Self, Stop> {
        let (px, since) = (trial.soon(), Instant::now());
        let text = px.as_millis().to_string();
        let request: Request = match condition {
            Some(condition) => request!["SET", key, "v", condition, "PX", text],
            None => request!["SET", key, "v", "PX", text],
        };
        trial.expect(&request, OK).await?;
        Ok(Self { since, px })
    }

    /// Returns whether the value must still exist: its expiry has not passed yet.
    fn is_there(&self) -> bool {
        self.since.elapsed() < self.px
    }

    /// Waits until the value must have expired.
    async fn over(&self) {
        sleep(self.px * 2).await;
    }

    /// Waits until all of these values must have expired. Their expiries differ, since they follow
    /// the durations of requests.
    async fn all_over(all: impl IntoIterator<Item = Self>) {
        if let Some(longest) = all.into_iter().max_by_key(|passing| passing.px) {
            longest.over().await;
        }
    }
}

pub(super) async fn expires(trial: &mut Trial) -> Done {
    let key = trial.key("long");
    // This number of milliseconds does not fit into 31 bits.
    trial.expect(&request!["SET", key, "v", "PX", "2147483648"], OK).await?;
    let second = trial.key("second");
    trial.expect(&request!["SET", second, "v", "PX", "1000"], OK).await?;
    let names = ["get", "del", "vdel", "nx", "nex"];
    let mut all = Vec::new();
    for name in names {
        let key = trial.key(name);
        let condition = match name {
            "nx" => Some("NX"),
            "nex" => Some("NEX"),
            _ => None,
        };
        let passing = Passing::set_with(trial, &key, condition).await?;
        let found = trial.request(&request!["GET", key]).await?;
        let is_there = found.0.payload == *b"$1\r\nv\r\n".as_slice();
        trial.must(is_there || !passing.is_there(), "expected the value before its time is over");
        all.push(passing);
    }
    Passing::all_over(all).await;
    sleep(Duration::from_millis(700)).await;
    trial.expect_value(&second, None).await?;
    let [get, del, vdel, nx, nex] = names.map(|name| trial.key(name));
    trial.expect_value(&get, None).await?;
    trial.expect(&request!["DEL", del], ZERO).await?;
    trial.expect(&request!["VDEL", vdel, "v"], ZERO).await?;
    trial.expect(&request!["SET", nx, "w", "NX"], OK).await?;
    trial.expect(&request!["SET", nex, "w", "NEX"], OK).await?;
    trial.expect_value(&key, Some("v")).await.map(drop)
}

pub(super) async fn restarts(trial: &mut Trial) -> Done {
    let (sooner, later) = (trial.key("sooner"), trial.key("later"));
    let first = Passing::set(trial, &later).await?;
    trial.expect(&request!["SET", later, "v", "NEX", "PX", "600000"], OK).await?;
    trial.expect(&request!["SET", sooner, "v", "PX", "600000"], OK).await?;
    let second = Passing::set_with(trial, &sooner, Some("NEX")).await?;
    // A removed value takes its expiry with it.
    let again = trial.key("again");
    let third = Passing::set(trial, &again).await?;
    trial.request(&request!["DEL", again]).await?;
    trial.set(&again, "v").await?;
    Passing::all_over([first, second, third]).await;
    trial.expect_value(&later, Some("v")).await?;
    trial.expect_value(&again, Some("v")).await?;
    trial.expect_value(&sooner, None).await.map(drop)
}

pub(super) async fn removed(trial: &mut Trial) -> Done {
    let key = trial.key("k");
    let passing = Passing::set(trial, &key).await?;
    trial.expect(&request!["SET", key, "w"], OK).await?;
    passing.over().await;
    let expected = crate::request::blob(b"w");
    trial.expect_by_choice(&request!["GET", key], expected).await.map(drop)
}

pub(super) async fn refused(trial: &mut Trial) -> Done {
    let key = trial.key("k");
    let passing = Passing::set(trial, &key).await?;
    for request in
        [request!["SET", key, "w", "NX", "PX", "600000"], request!["SET", key, "w", "NEX"]]
    {
        let got = trial.request(&request).await?;
        let is_applied = got.0.payload == OK;
        if is_applied && !passing.is_there() {
            return Err(Stop::Skipped("answers take too long for it"));
        }
        trial.must(!is_applied, "expected that it is not applied");
    }
    passing.over().await;
    trial.expect_value(&key, None).await.map(drop)
}
