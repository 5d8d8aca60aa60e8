// An exercise of the chapter Build: a driver of one file. Whoever loads it can
// call orTwice, as meant, and also finds what only this file may use.
//
//   nox -s tests -- backend/tests/judge.py -k exports

int calls = 0;

int add(int a, int b) {
  ++calls;
  return a + b;
}

extern "C" int orTwice(int number) {
  return add(number, number);
}

extern "C" int orCalls() {
  return calls;
}

// expect: ok
