int add(int a, int b);
void sleep_us(int us);
void spin_us(int us);
int call_back(int depth);
int run_threads(int n, int callbacks);
