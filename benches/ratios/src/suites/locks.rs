//! Locks against their requests alone, through the same handles.

use std::net::Ipv4Addr;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use statestore_client::{Options, connect};
use statestore_loopback::Hub;
use statestore_proto::client::WatchEvent;
use statestore_testkit::brokers::Mosquitto;
use statestore_tokio::{Removal, StateStore, StoreService, Watch};
use tokio::task::yield_now;

use super::Suite;
use super::e2e::Samples;
use crate::bare::Failure;
use crate::race::Lap;
use crate::report::Report;

pub(super) const SUITE: Suite = Suite {
    name: "locks",
    about: "a lock against its requests alone: us per acquire and release, p50 of a hand-over",
    run,
};

const KEY: &str = "lock";

/// Values with the length of those that a lock writes.
const A: &str = "a/0123456789abcdef/0";
const B: &str = "b/0123456789abcdef/0";

const LEASE: Duration = Duration::from_secs(10);

fn run(report: &mut Report<'_>) -> Result<(), Failure> {
    let runtime =
        tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?;
    let all = async {
        loopback(report).await?;
        mosquitto(report).await?;
        embedded(report).await
    };
    runtime.block_on(all)
}

async fn loopback(report: &mut Report<'_>) -> Result<(), Failure> {
    let broker = Hub::new();
    let service = StoreService::builder().spawn(broker.store_link("statestore"));
    service.wait_connected().await?;
    let client = |id| StateStore::builder().spawn(broker.link(id));
    let stage = Stage { a: client("a")?, b: client("b")?, service: service.into() };
    stage.compare("loopback", report).await
}

async fn mosquitto(report: &mut Report<'_>) -> Result<(), Failure> {
    let Some(broker) = Mosquitto::start("locks") else {
        eprintln!(
            "locks/mosquitto: skipped: mosquitto is not installed (apt-get install mosquitto)"
        );
        return Ok(());
    };
    let at = |id| Options::new(id, "127.0.0.1", broker.port());
    let service = statestore_client::serve(at("statestore"))?;
    service.wait_connected().await?;
    let stage = Stage { a: connect(at("a"))?, b: connect(at("b"))?, service: service.into() };
    stage.compare("mosquitto", report).await
}

async fn embedded(report: &mut Report<'_>) -> Result<(), Failure> {
    let options = statestore_server::Options::new((Ipv4Addr::LOCALHOST, 0));
    let (broker, service) = statestore_server::serve(options).await?;
    service.wait_connected().await?;
    let port = broker.local_addr().port();
    let at = |id| Options::new(id, "127.0.0.1", port);
    let stage = Stage { a: connect(at("a"))?, b: connect(at("b"))?, service: service.into() };
    stage.compare("embedded", report).await?;
    broker.stop().await;
    Ok(())
}

/// A store and two clients.
#[derive(Clone)]
struct Stage {
    a: StateStore,
    b: StateStore,
    service: Arc<StoreService>,
}

impl Stage {
    async fn compare(self, name: &str, report: &mut Report<'_>) -> Result<(), Failure> {
        let (rounds, times) = if report.is_test() { (1, 3) } else { (15, 200) };
        eprintln!("locks/{name} ({rounds} rounds)");
        let mut pairs: [Samples; 2] = Default::default();
        let mut hand_overs: [Samples; 2] = Default::default();
        for _ in 0..rounds {
            for (side, is_bare) in [false, true].into_iter().enumerate() {
                // On a worker of the runtime, like the tasks of an application.
                let (stage, lap) = (self.clone(), Lap::start());
                let all = async move { stage.pairs(is_bare, 5 * times).await };
                pairs[side].add(tokio::spawn(all).await??, lap.time());
                let (stage, lap) = (self.clone(), Lap::start());
                let all = async move { stage.hand_overs(is_bare, times).await };
                hand_overs[side].add(tokio::spawn(all).await??, lap.time());
            }
        }
        let [lock, bare] = pairs;
        report.compare(&format!("locks/{name}/pair/each"), &lock.each, "set+vdel", &bare.each)?;
        report.compare(&format!("locks/{name}/pair/p50"), &lock.p50, "set+vdel", &bare.p50)?;
        let [lock, bare] = hand_overs;
        let name = format!("locks/{name}/hand-over/p50");
        report.compare(&name, &lock.p50, "vdel+told+set", &bare.p50)?;
        Ok(())
    }

    /// Acquires and releases repeatedly.
    async fn pairs(&self, is_bare: bool, times: usize) -> Result<Vec<Duration>, Failure> {
        let mut spent = Vec::with_capacity(times);
        for _ in 0..times {
            let lap = Lap::start();
            if is_bare {
                assert!(set(&self.a, A).await?, "the key is free");
                vdel(&self.a, A).await?;
            } else {
                let released = self.a.lock(KEY).acquire().await?.release().await?;
                assert!(released, "the key existed");
            }
            spent.push(lap.time());
        }
        Ok(spent)
    }

    /// Measures from the release of one client to the acquisition by another one that waits.
    async fn hand_overs(&self, is_bare: bool, times: usize) -> Result<Vec<Duration>, Failure> {
        let mut spent = Vec::with_capacity(times);
        for _ in 0..times {
            spent.push(if is_bare {
                self.bare_hand_over().await?
            } else {
                self.hand_over().await?
            });
        }
        Ok(spent)
    }

    async fn hand_over(&self) -> Result<Duration, Failure> {
        let guard = self.a.lock(KEY).acquire().await?;
        let released = OnceLock::new();
        let release = async {
            self.until_watched().await?;
            released.get_or_init(Lap::start);
            assert!(guard.release().await?, "the key existed");
            Ok::<_, Failure>(())
        };
        let acquire = async {
            let guard = self.b.lock(KEY).acquire().await?;
            Ok((guard, since(&released)?))
        };
        let ((), (guard, time)) = tokio::try_join!(release, acquire)?;
        guard.release().await?;
        self.until_unwatched().await;
        Ok(time)
    }

    async fn bare_hand_over(&self) -> Result<Duration, Failure> {
        assert!(set(&self.a, A).await?, "the key is free");
        let released = OnceLock::new();
        let release = async {
            self.until_watched().await?;
            released.get_or_init(Lap::start);
            vdel(&self.a, A).await
        };
        let acquire = async {
            assert!(!set(&self.b, B).await?, "the key is taken");
            let mut watch = self.b.watch(KEY).await?;
            until_free(&mut watch).await?;
            assert!(set(&self.b, B).await?, "the key is free");
            since(&released)
        };
        let ((), time) = tokio::try_join!(release, acquire)?;
        vdel(&self.b, B).await?;
        self.until_unwatched().await;
        Ok(time)
    }

    /// Waits until `b` watches the key and has read it.
    async fn until_watched(&self) -> Result<(), Failure> {
        while self.service.stats().registrations != 1 {
            yield_now().await;
        }
        // The registration has its response before the first GET, and the read that follows before
        // the second.
        for _ in 0..2 {
            self.b.get(KEY).await?;
        }
        Ok(())
    }

    async fn until_unwatched(&self) {
        while self.service.stats().registrations != 0 {
            yield_now().await;
        }
    }
}

fn since(moment: &OnceLock<Lap>) -> Result<Duration, Failure> {
    Ok(moment.get().ok_or("acquired before the release")?.time())
}

async fn set(store: &StateStore, value: &'static str) -> Result<bool, Failure> {
    Ok(store.set(KEY, value).if_absent_or_equal().expires_after(LEASE).await?.is_some())
}

async fn vdel(store: &StateStore, value: &'static str) -> Result<(), Failure> {
    assert_eq!(store.vdel(KEY, value).await?, Removal::Removed, "the key existed");
    Ok(())
}

async fn until_free(watch: &mut Watch) -> Result<(), Failure> {
    while let Some(event) = watch.next().await {
        if matches!(event, WatchEvent::Changed { value: None, .. }) {
            return Ok(());
        }
    }
    Err("the watch ended".into())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::race::Effort;

    #[test]
    fn both_sides_acquire_and_release() {
        run(&mut Report::new(Effort::TEST, &mut Vec::new())).unwrap();
    }
}
