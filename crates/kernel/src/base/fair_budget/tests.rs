use std::pin::pin;

use futures_util::FutureExt;
use futures_util::future::poll_immediate;

use super::*;

const LONG: Duration = Duration::from_hours(1);

fn budget(shared: usize, reserve: usize, divisor: usize) -> FairBudget<u32> {
    FairBudget::new(BudgetLimits { shared, reserve, floor: 1, divisor, ..BudgetLimits::UNLIMITED })
}

/// Acquires single units until the payer is refused.
fn take_all(budget: &FairBudget<u32>, payer: u32) -> Vec<BudgetPermit<u32>> {
    std::iter::from_fn(|| budget.try_acquire(payer.into(), 1)).collect()
}

#[test]
fn a_payer_that_is_alone_has_its_part_and_each_further_one_a_part_of_what_is_left() {
    let budget = budget(64, 0, 8);
    let held: Vec<_> = (0..4).map(|payer| take_all(&budget, payer)).collect();
    assert_eq!(held.iter().map(Vec::len).collect::<Vec<_>>(), [8, 7, 6, 5]);
    drop(held);
    assert_eq!(take_all(&budget, 9).len(), 8, "all of it is released");
    assert!(budget.lock_state().payers.is_empty(), "nobody who holds nothing is remembered");
}

#[test]
fn one_alone_has_its_part_and_gets_it_again_when_it_has_given_it_back() {
    for (shared, divisor, most) in [(512, 4, 128), (512, 9, 56), (64, 8, 8), (20, 9, 2), (2, 9, 1), (1, 9, 1)] {
        let budget = budget(shared, 0, divisor);
        for _ in 0..2 {
            assert_eq!(budget.available_for(&0), most, "{shared} / {divisor}");
            assert_eq!(take_all(&budget, 0).len(), most, "{shared} / {divisor}");
        }
    }
    assert!(budget(0, 0, 9).try_acquire(1.into(), 1).is_none());
}

#[test]
fn however_many_take_all_they_get_something_is_left_for_one_who_has_nothing() {
    for payers in [1, 2, 8, 11, 32, 100, 400] {
        let budget = budget(512, 0, 9);
        let mut held = Vec::new();
        // In turn, until none gets another.
        while (0..payers).any(|payer| budget.available_for(&payer) > 0) {
            held.extend((0..payers).filter_map(|payer| budget.try_acquire(payer.into(), 1)));
        }
        assert!(budget.available_for(&payers) > 0, "{payers} hold {}", held.len());
        assert!(budget.try_acquire(payers.into(), 1).is_some());
    }
}

#[test]
fn units_of_another_budget_count_as_if_they_were_held_here() {
    let budget = budget(64, 0, 8);
    let beside: Vec<_> = std::iter::from_fn(|| budget.try_acquire_counting(1.into(), 1, 3)).collect();
    assert_eq!(beside.len(), 5, "eight, less three");
    assert!(budget.is_half_free());
}

#[tokio::test]
async fn a_payer_has_a_fixed_number_however_many_are_free() {
    let budget = FairBudget::new(BudgetLimits { each: 2, ..BudgetLimits::UNLIMITED });
    let mut first = take_all(&budget, 1);
    assert_eq!((first.len(), budget.available_for(&1), take_all(&budget, 2).len()), (2, 0, 2));
    let mut waiting = Box::pin(budget.acquire(1.into(), 1, LONG));
    assert!(poll_immediate(&mut waiting).await.is_none());
    drop(first.pop());
    assert!(waiting.await.is_some());
    let beyond = budget.acquire_over_limit(1.into(), 5);
    assert_eq!(budget.held_by(&1), 6, "what is in use already is counted");
    drop(beyond);
    let none = FairBudget::new(BudgetLimits { each: 0, ..BudgetLimits::UNLIMITED });
    assert!(none.try_acquire(1.into(), 1).is_none());
}

#[test]
fn however_many_hoard_the_next_payer_finds_something() {
    let budget = budget(4096, 4096, 8);
    let hoarders: Vec<_> = (0..32).map(|payer| take_all(&budget, payer)).collect();
    assert!(take_all(&budget, 99).len() >= 7, "{} are held", budget.lock_state().held);
    assert!(hoarders.iter().all(|held| held.len() <= 512));
}

#[test]
fn one_who_holds_nothing_takes_from_the_reserve_which_is_bounded_too() {
    let budget = budget(2, 3, 1);
    let first = take_all(&budget, 0);
    assert_eq!(first.len(), 2);
    let reserve: Vec<_> = (1..=5).filter_map(|payer| budget.try_acquire(payer.into(), 1)).collect();
    assert_eq!(reserve.len(), 3);
    assert!(budget.try_acquire(1.into(), 1).is_none(), "one of the reserve each");
}

#[test]
fn a_payer_has_its_floor_beside_those_that_hoard() {
    let limits = BudgetLimits { shared: 64, reserve: 64, floor: 5, divisor: 8, ..BudgetLimits::UNLIMITED };
    let budget = FairBudget::new(limits);
    let hoarders: Vec<_> = (0..12).map(|payer| take_all(&budget, payer)).collect();
    assert!(hoarders[11].len() == 5 && hoarders[0].len() == 8, "its floor, or its part where that is more");
    assert_eq!(take_all(&budget, 99).len(), 5);
}

#[test]
fn one_credential_has_half_of_what_its_payer_may_hold() {
    let budget = budget(64, 0, 8);
    let account = |name: &str| BudgetAccount { payer: 1, credential: Some(name.into()) };
    let take = |name: &str| std::iter::from_fn(|| budget.try_acquire(account(name), 1)).collect::<Vec<_>>();
    let one = take("one");
    assert_eq!(one.len(), 4);
    assert!(budget.is_nearly_spent(&account("one")) && !budget.is_nearly_spent(&account("other")));
    let other = take("other");
    assert_eq!(other.len(), 4);
    assert!(budget.is_nearly_spent(&account("third")), "all that the payer may hold is held");
    drop((one, other));
    assert!(budget.lock_state().payers.is_empty());
}

#[tokio::test]
async fn what_is_released_goes_to_payers_in_turn_and_first_to_one_that_had_nothing() {
    let budget = budget(1, 0, 1);
    let held = budget.try_acquire(1.into(), 1).unwrap();
    let mut waits: Vec<_> =
        [1, 1, 2, 2, 3].map(|payer| (payer, Box::pin(budget.acquire(payer.into(), 1, LONG)))).into_iter().collect();
    for (_, wait) in &mut waits {
        assert!(poll_immediate(&mut *wait).await.is_none());
    }
    drop(held);
    let mut order = Vec::new();
    while !waits.is_empty() {
        // A granted waiter yields once before it returns its permit.
        let mut granted = None;
        for _ in 0..2 {
            for (index, (_, wait)) in waits.iter_mut().enumerate() {
                if let Some(permit) = poll_immediate(&mut *wait).await {
                    granted = Some((index, permit.unwrap()));
                    break;
                }
            }
            if granted.is_some() {
                break;
            }
        }
        let (index, permit) = granted.unwrap();
        order.push(waits.remove(index).0);
        drop(permit);
    }
    assert_eq!(order, [2, 3, 1, 2, 1]);
}

#[tokio::test]
async fn one_that_stops_waiting_leaves_nothing_behind_and_keeps_nobody_waiting() {
    let budget = budget(1, 0, 1);
    let held = budget.try_acquire(1.into(), 1).unwrap();
    assert!(budget.acquire(2.into(), 1, Duration::ZERO).await.is_none());
    {
        let mut gone = pin!(budget.acquire(3.into(), 1, LONG));
        assert!(poll_immediate(&mut gone).await.is_none());
    }
    let mut granted_and_gone = Box::pin(budget.acquire(4.into(), 1, LONG));
    let mut last = Box::pin(budget.acquire(5.into(), 1, LONG));
    assert!(poll_immediate(&mut granted_and_gone).await.is_none() && poll_immediate(&mut last).await.is_none());
    drop(held);
    drop(granted_and_gone);
    let permit = last.await.unwrap();
    drop(permit);
    let state = budget.lock_state();
    assert!(state.payers.is_empty() && state.sparse.is_empty() && state.backlogged.is_empty() && state.held == 0);
}

#[tokio::test]
async fn a_permit_grows_while_there_is_room() {
    let budget = budget(8, 8, 2);
    let mut permit = budget.try_acquire(1.into(), 3).unwrap();
    assert!(permit.grow(1, LONG).now_or_never().unwrap());
    assert!(!permit.grow(1, Duration::ZERO).await, "half of all is what one may have");
    assert_eq!(budget.held_by(&1), 4);
    drop(permit);
    assert_eq!(budget.held_by(&1), 0);
}

#[tokio::test]
async fn an_earlier_waiter_of_the_same_payer_is_not_overtaken() {
    let budget = budget(8, 0, 1);
    let held = budget.try_acquire(1.into(), 7).unwrap();
    let mut large = Box::pin(budget.acquire(1.into(), 4, LONG));
    assert!(poll_immediate(&mut large).await.is_none());
    assert!(budget.try_acquire(1.into(), 1).is_none(), "it would fit, and comes later");
    assert!(budget.try_acquire(2.into(), 1).is_some(), "others are not held up");
    let mut small = Box::pin(budget.acquire(1.into(), 1, LONG));
    assert!(poll_immediate(&mut small).await.is_none());
    drop(large);
    assert!(small.await.is_some(), "one that gives up lets those behind it go on");
    drop(held);
}

/// Two payers always ask for one unit after the other, and one has asked for two at once.
#[tokio::test]
async fn payers_that_come_back_again_and_again_keep_nobody_waiting_for_good() {
    let budget = budget(1, 0, 1);
    let mut held = budget.try_acquire(9.into(), 1).unwrap();
    let mut waiting = Box::pin(budget.acquire(9.into(), 1, LONG));
    assert!(poll_immediate(&mut waiting).await.is_none());
    let (mut coming, mut asking) = (vec![1, 2], Vec::new());
    for _ in 0..20 {
        for payer in coming.drain(..) {
            let mut asked = Box::pin(budget.acquire(payer.into(), 1, LONG));
            assert!(poll_immediate(&mut asked).await.is_none());
            asking.push((payer, asked));
        }
        // Who holds the unit comes back when it is released.
        coming.extend([1, 2].into_iter().filter(|payer| budget.held_by(payer) > 0));
        drop(held);
        if budget.held_by(&9) > 0 {
            assert!(waiting.await.is_some());
            return;
        }
        held = asking.remove(0).1.await.unwrap();
    }
    assert_eq!(budget.held_by(&9), 1, "it is never served");
}
