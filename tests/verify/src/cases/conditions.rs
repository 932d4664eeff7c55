use std::time::Duration;

use crate::ask::{Dialect, ask};
use crate::trial::{Done, OK, ONE, Trial};

pub(super) async fn nx(trial: &mut Trial) -> Done {
    let key = trial.key("k");
    trial.expect(&ask!["SET", key, "v", "NX"], OK).await?;
    trial.not_applied(&ask!["SET", key, "v", "NX"]).await?;
    trial.not_applied(&ask!["SET", key, "w", "NX"]).await?;
    trial.has(&key, Some("v")).await?;
    trial.expect(&ask!["DEL", key], ONE).await?;
    trial.expect(&ask!["SET", key, "w", "NX"], OK).await?;
    Ok(())
}

pub(super) async fn nex(trial: &mut Trial) -> Done {
    let key = trial.key("k");
    trial.expect(&ask!["SET", key, "Client1", "NEX"], OK).await?;
    trial.expect(&ask!["SET", key, "Client1", "NEX"], OK).await?;
    for other in ["Client2", "client1", "Client", "Client10", ""] {
        trial.not_applied(&ask!["SET", key, other, "NEX"]).await?;
    }
    trial.not_applied(&ask!["SET", key, "Client2", "NEX", "PX", "60000"]).await?;
    trial.has(&key, Some("Client1")).await?;
    Ok(())
}

pub(super) async fn refused(trial: &mut Trial) -> Done {
    let key = trial.key("k");
    let version = trial.set(&key, "v").await?;
    trial.not_applied(&ask!["SET", key, "w", "NX", "PX", "100"]).await?;
    trial.not_applied(&ask!["SET", key, "w", "NEX", "PX", "100"]).await?;
    tokio::time::sleep(Duration::from_millis(200)).await;
    let told = trial.has(&key, Some("v")).await?;
    let told = told.timestamp().unwrap_or("none");
    trial.must(told == version, format_args!("expected the version {version}, got {told}"));
    Ok(())
}

pub(super) async fn dialect(trial: &mut Trial) -> Done {
    let key = trial.key("k");
    trial.set(&key, "v").await?;
    for dialect in Dialect::BOTH {
        trial.not_applied(&ask!["SET", key, "w", "NX"].dialect(dialect)).await?;
        trial.not_applied(&ask!["VDEL", key, "w"].dialect(dialect)).await?;
    }
    Ok(())
}
