//! What a reserve needs: a master that keeps data, that may be written to, and whose clock agrees with ours.

use super::RedisStore;
use super::connect::ask_kind;
use super::script::Call;
use crate::store::StoreError;
use crate::tag::Tag;

impl RedisStore {
    /// Tried on a key that is never there, so that nothing changes. A full server passes: it refuses reserves and still
    /// settles.
    pub(super) async fn try_ready(&self) -> Result<(), StoreError> {
        if let Some(unfit) = ask_kind(&mut self.connection.clone()).await? {
            self.connection.renew();
            return Err(StoreError::Unfit(unfit.word()));
        }
        let nobody = Tag::of("ready", []);
        let call =
            Call { keys: vec![self.keys.self_test(nobody)], arguments: vec![self.now()], ..Call::default() };
        let answer: Vec<u8> = self.scripts.ready.run(&self.connection, &call).await?;
        if answer == b"C" { Err(StoreError::Clock) } else { Ok(()) }
    }

    /// The server's time, by which holds lapse. Refused where the clocks differ too much.
    pub(super) async fn server_now_ms(&self) -> Result<u64, StoreError> {
        let keys = vec![self.keys.self_test(Tag::of("time", []))];
        let call = Call { keys, arguments: vec![self.now()], ..Call::default() };
        let now: Option<u64> = self.patiently(|| self.scripts.time.run(&self.connection, &call)).await?;
        now.ok_or(StoreError::Clock)
    }
}
