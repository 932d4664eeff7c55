use std::time::Duration;

use crate::ask::ask;
use crate::trial::{Done, OK, Trial, ZERO};

/// How long values live here, and how long to wait until they are surely gone.
const PX: &str = "250";
const OVER: Duration = Duration::from_millis(500);

pub(super) async fn expires(trial: &mut Trial) -> Done {
    let names = ["get", "del", "vdel", "nx", "nex"];
    for name in names {
        let key = trial.key(name);
        trial.expect(&ask!["SET", key, "v", "PX", PX], OK).await?;
    }
    let key = trial.key("long");
    trial.expect(&ask!["SET", key, "v", "PX", "600000"], OK).await?;
    tokio::time::sleep(OVER).await;
    let [get, del, vdel, nx, nex] = names.map(|name| trial.key(name));
    trial.has(&get, None).await?;
    trial.expect(&ask!["DEL", del], ZERO).await?;
    trial.expect(&ask!["VDEL", vdel, "v"], ZERO).await?;
    trial.expect(&ask!["SET", nx, "w", "NX"], OK).await?;
    trial.expect(&ask!["SET", nex, "w", "NEX"], OK).await?;
    trial.has(&trial.key("long"), Some("v")).await?;
    Ok(())
}

pub(super) async fn counts_anew(trial: &mut Trial) -> Done {
    let (sooner, later) = (trial.key("sooner"), trial.key("later"));
    trial.expect(&ask!["SET", later, "v", "PX", PX], OK).await?;
    trial.expect(&ask!["SET", later, "v", "NEX", "PX", "600000"], OK).await?;
    trial.expect(&ask!["SET", sooner, "v", "PX", "600000"], OK).await?;
    trial.expect(&ask!["SET", sooner, "v", "NEX", "PX", PX], OK).await?;
    tokio::time::sleep(OVER).await;
    trial.has(&later, Some("v")).await?;
    trial.has(&sooner, None).await?;
    Ok(())
}

pub(super) async fn removed(trial: &mut Trial) -> Done {
    let key = trial.key("k");
    trial.expect(&ask!["SET", key, "v", "PX", PX], OK).await?;
    trial.expect(&ask!["SET", key, "w"], OK).await?;
    tokio::time::sleep(OVER).await;
    let expected = crate::ask::blob(b"w");
    trial.chosen(&ask!["GET", key], expected).await?;
    Ok(())
}

pub(super) async fn refused(trial: &mut Trial) -> Done {
    let key = trial.key("k");
    trial.expect(&ask!["SET", key, "v", "PX", PX], OK).await?;
    trial.not_applied(&ask!["SET", key, "w", "NX", "PX", "600000"]).await?;
    trial.not_applied(&ask!["SET", key, "w", "NEX"]).await?;
    tokio::time::sleep(OVER).await;
    trial.has(&key, None).await?;
    Ok(())
}
