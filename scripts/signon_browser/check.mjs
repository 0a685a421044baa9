// What every check has in common: it says a sentence when it holds, it is counted, and it does not wait for ever.

// Each wait ends after this: the machine may be busy, and everything asked for here takes milliseconds.
export const WAIT_MS = 60_000;

let count = 0;

export function checks() {
  return count;
}

// Does the work and says the sentence; or throws, with the sentence and what was seen.
export async function check(sentence, work) {
  try {
    const result = await work();
    count += 1;
    console.log(`ok  ${sentence}`);
    return result;
  } catch (error) {
    throw new Error(`not so: ${sentence}`, { cause: error });
  }
}

// For what has no limit of its own.
export async function within(work, what) {
  let timer;
  const late = new Promise((_resolve, reject) => {
    timer = setTimeout(() => reject(new Error(`${what} took more than ${WAIT_MS} ms`)), WAIT_MS);
  });
  return Promise.race([work, late]).finally(() => clearTimeout(timer));
}
