use tokengate_api::{Outcome, SettleItem, SettleResponse, SettleResult, SettleStatus, model_name};
use tracing::{debug, warn};

use super::{Quota, STORE_TIME};
use crate::limits::MAX_AMOUNT;
use crate::policy::{Policy, normal_tier};
use crate::quiet::Quiet;
use crate::request_plan::{RequestPlan, plan_booking};
use crate::store::{
    Answered, Booking, Charge, Closed, Closing, HeldRecord, KeptEvent, Settled, Settlement, StoreError,
};
use crate::subject::Who;
use crate::tag::Tag;

static FAILED: Quiet = Quiet::new();
static CHANGED_NOTHING: Quiet = Quiet::new();
static ABSURD: Quiet = Quiet::new();
static UNREADABLE: Quiet = Quiet::new();

/// A batch was not, or not wholly, carried out. Sending it again is harmless.
#[derive(Debug, thiserror::Error)]
pub enum SettleError {
    #[error(transparent)]
    Store(#[from] StoreError),
}

impl Quota {
    /// Settles a batch, one result per item in the same order.
    ///
    /// # Errors
    /// The store failed for at least one item: the whole batch should come again. One item whose state cannot be read
    /// changes nothing, like one that nobody knows, and keeps no other waiting.
    pub async fn settle(&self, items: &[SettleItem]) -> Result<SettleResponse, SettleError> {
        let policy = self.policy();
        let settlements: Vec<_> = items.iter().map(|item| self.settlement(&policy, item)).collect();
        // Where no account is known there is nothing to look for.
        let known =
            || items.iter().zip(&settlements).filter_map(|(item, known)| Some((item, known.as_ref()?)));
        let batch: Vec<_> = known().map(|(_, (settlement, _))| settlement.clone()).collect();
        let told: Vec<_> = known().collect();
        let tell = |place: usize, closed: &Closed| {
            let (item, (settlement, would_hold)) = told.get(place)?;
            let record = record_of(closed, *would_hold);
            self.telemetry.event(&policy, item, status(closed.settled), settlement.account, record.as_ref())
        };
        let mut answers = self.store.settle(&batch, &tell, STORE_TIME).await.into_iter();
        let mut results = Vec::with_capacity(items.len());
        let mut failed = None;
        for (item, settlement) in items.iter().zip(&settlements) {
            let answer =
                settlement.as_ref().and_then(|_| answers.next()).unwrap_or(Ok(Settled::Unknown.into()));
            let closed = match answer {
                Ok(closed) => closed,
                Err(error @ StoreError::Format) => {
                    if let Some(unsaid) = UNREADABLE.say() {
                        warn!(id = %item.id, %error, unsaid, "a settle found no usable state: the hold stays charged");
                    }
                    Settled::Unknown.into()
                }
                Err(error) => {
                    failed = Some(error);
                    continue;
                }
            };
            let settled = closed.settled;
            if matches!(settled, Settled::Late | Settled::Unknown) {
                let tokens = item.usage.as_ref().map_or(0, |usage| usage.total());
                if let Some(unsaid) = CHANGED_NOTHING.say() {
                    let age_ms = item.age_ms;
                    warn!(id = %item.id, ?settled, tokens, age_ms, unsaid, "a settle changed nothing");
                }
            } else {
                debug!(id = %item.id, ?settled, outcome = ?item.outcome, "settle");
            }
            let status = status(settled);
            // Also when another item fails: to its repeat, this one will have been settled already.
            let would_hold = settlement.as_ref().and_then(|(_, would_hold)| *would_hold);
            self.telemetry.settled(&policy, item, status, record_of(&closed, would_hold).as_ref());
            if let (Some((settlement, _)), Some(line)) = (settlement, closed.event) {
                self.telemetry.send(KeptEvent { account: settlement.account, id: item.id.clone(), line });
            }
            results.push(SettleResult { id: item.id.clone(), status });
        }
        if let Some(error) = failed {
            if let Some(unsaid) = FAILED.say() {
                warn!(%error, items = items.len(), unsaid, "a settle batch failed");
            }
            return Err(error.into());
        }
        Ok(SettleResponse { results, policy_version: policy.version.clone() })
    }

    /// With what the reserve in it, if there is one, would have held. Nothing when neither `account` nor `reserve`
    /// tells whose reservation it is.
    fn settlement(&self, policy: &Policy, item: &SettleItem) -> Option<(Settlement, Option<HeldRecord>)> {
        let plan = item.reserve.as_ref().and_then(|request| {
            plan_booking(policy, &self.overrides.load(), request, self.clock.now_ms()).ok()
        });
        let by_key = || {
            let who = Who::of(policy, item.reserve.as_ref()?).ok()?;
            Some(Tag::account(&who.identity.tenant))
        };
        let account = item.account.as_deref().and_then(Tag::parse).or_else(by_key)?;
        let closing = closing(item);
        let answered = answered(policy, item);
        let plan = plan.filter(|plan| plan.hold.account == account);
        let settlement = Settlement {
            id: item.id.clone(),
            account,
            closing,
            answered,
            attempt: None,
            age_ms: item.age_ms,
            queued_ms: item.queued_ms,
            booking: plan.as_ref().and_then(|plan| bookings(plan, closing, &answered)),
        };
        Some((settlement, plan.map(|plan| would_hold(&plan, closing, &answered))))
    }
}

/// What was held, or, for what was booked, what would have been.
fn record_of(closed: &Closed, would_hold: Option<HeldRecord>) -> Option<HeldRecord> {
    closed.held.or(would_hold.filter(|_| closed.settled == Settled::Booked))
}

fn closing(item: &SettleItem) -> Closing {
    match (item.outcome, &item.usage) {
        (Outcome::Released, _) => Closing::Released { sent: item.sent },
        (Outcome::Used | Outcome::Estimated, Some(usage)) if usage.total() <= MAX_AMOUNT => {
            Closing::Used(*usage)
        }
        // A number nobody can have used must neither be charged nor stop the other items of its batch.
        (Outcome::Used | Outcome::Estimated, usage) => {
            if let Some(unsaid) = ABSURD.say() {
                let absurd = usage.is_some();
                warn!(id = %item.id, absurd, unsaid, "no usable usage: what was held is charged");
            }
            Closing::Held
        }
        (Outcome::Held, _) => Closing::Held,
    }
}

/// Who gave the answer, as far as it says.
fn answered(policy: &Policy, item: &SettleItem) -> Answered {
    let meant = |name: &String| {
        // Not `unknown_model`: a name that nobody has listed is not the name of another model that was asked for.
        let model = model_name::find(name, &policy.models, |model| &model.patterns)?;
        Some(Tag::model(Some(&model.name)))
    };
    let tier = item.service_tier.as_deref().map(normal_tier).filter(|tier| !tier.is_empty());
    Answered {
        name: item.model.as_deref().and_then(Tag::named),
        model: item.model.as_ref().and_then(meant),
        tier: tier.as_deref().map(Tag::tier),
    }
}

fn would_hold(plan: &RequestPlan, closing: Closing, answered: &Answered) -> HeldRecord {
    let alternatives = &plan.hold.alternatives;
    let answering = alternatives.answering(answered).and_then(|at| alternatives.models.get(usize::from(at)));
    HeldRecord {
        model: answering.copied().unwrap_or(plan.hold.model),
        plan: Some(plan.hold.plan),
        prompt_tokens: plan.hold.prompt_tokens,
        output_tokens: plan.hold.output_tokens,
        reserved_at_ms: None,
        prices: match closing {
            Closing::Used(usage) => alternatives.price(&usage, answered),
            Closing::Held | Closing::Released { .. } => None,
        },
    }
}

/// What a request costs that was let through without a hold. A release owes nothing.
fn bookings(plan: &RequestPlan, closing: Closing, answered: &Answered) -> Option<Vec<Booking>> {
    let hold = &plan.hold;
    let booking = |charge: &Charge| {
        let amount = match closing {
            Closing::Used(usage) => hold.alternatives.of_usage(&charge.counted(), &usage, answered),
            _ if hold.alternatives.is_anothers(charge.model, answered) => 0,
            _ => hold.amount(charge, hold.output_tokens),
        };
        Booking { meter: charge.meter, amount }
    };
    match closing {
        Closing::Released { .. } => None,
        Closing::Held | Closing::Used(_) => Some(hold.charges.iter().map(booking).collect()),
    }
}

fn status(settled: Settled) -> SettleStatus {
    match settled {
        Settled::Replaced => SettleStatus::Settled,
        Settled::Already => SettleStatus::AlreadySettled,
        Settled::Booked => SettleStatus::Booked,
        Settled::Late => SettleStatus::Late,
        Settled::Unknown => SettleStatus::Unknown,
    }
}
